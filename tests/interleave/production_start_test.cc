// SPDX-License-Identifier: Apache-2.0
// The start of a loop against a start that fails, and against an end before the start.
#include "expect_explored.h"
#include "loop/life_cycle.h"

#include <millrace/concurrent/inbox.h>

#include <gtest/gtest.h>

#include <vector>

namespace millrace::explorer {
namespace {

enum class State { notStarted, started, shuttingDown, terminated };

// A loop without a wakeup word: its thread spins until the producers are done.
struct StartState {
  ::millrace::Inbox inbox;
  LifeCycle<State> life;
  Atomic<uint32_t> threadMade{0};
  Atomic<uint32_t> finished{0};  // producers and enders that are done
  int makes = 0;                 // under the start lock
  int failures = 0;              // so many starts fail; under the start lock
  bool accepted[4] = {};
  std::vector<int> log;  // whoever consumes

  ~StartState() {
    auto left = inbox.take().chain;
    while (TaskNode* node = left.popFront()) delete node;
  }

  ::millrace::Result<void> make() {
    ++makes;
    if (failures > 0) {
      --failures;
      return Error::fromErrno(EAGAIN, "pthread_create");
    }
    threadMade.store(1, std::memory_order_seq_cst);
    return {};
  }
  void execute(int id) {
    auto* node = new TaskNode;
    node->task = [this, id] { log.push_back(id); };
    if (!inbox.push(node, TaskNode::user)) {
      delete node;
      return;
    }
    accepted[id] = true;
    if (life.state() == State::notStarted) {
      if (!life.start(inbox, node, [this] { return make(); })) {
        accepted[id] = false;
        delete node;
      }
    }
  }
  void consume(TaskChain chain) {
    while (TaskNode* node = chain.popFront()) {
      node->task();
      delete node;
    }
  }
  /// The loop's thread: there from the start, but it only works once it was "made".
  void loopThread(uint32_t others) {
    while (finished.load(std::memory_order_seq_cst) != others) cpuRelax();
    if (threadMade.load(std::memory_order_seq_cst) == 0) return;
    life.markStarted();
    consume(inbox.close().chain);
  }
  void checkEnd() const {
    for (int id = 1; id < 4; ++id) {
      int ran = 0;
      for (const int each : log) ran += each == id ? 1 : 0;
      EXPLORE_CHECK(ran == (accepted[id] ? 1 : 0),
                    "an accepted task runs exactly once, a refused one never");
    }
    EXPLORE_CHECK(threadMade.load() <= 1 && makes >= 0, "at most one thread");
  }
};

Scenario racingStarts(int failures) {
  return [failures](Execution& run) {
    auto& s = run.make<StartState>();
    s.failures = failures;
    run.thread("loop", [&s] { s.loopThread(2); });
    run.thread("first", [&s] {
      s.execute(1);
      s.execute(2);
      s.finished.fetch_add(1, std::memory_order_seq_cst);
    });
    run.thread("second", [&s] {
      s.execute(3);
      s.finished.fetch_add(1, std::memory_order_seq_cst);
    });
    run.finally([&s, failures] {
      s.checkEnd();
      EXPLORE_CHECK(failures > 0 || s.makes == 1, "exactly one start");
      // FIFO of one producer, also past a failed start of the other.
      std::vector<int> mine;
      for (const int id : s.log) {
        if (id != 3) mine.push_back(id);
      }
      EXPLORE_CHECK(mine.size() < 2 || mine[0] < mine[1], "tasks of one producer keep their order");
    });
  };
}

// C046 C049 I6
TEST(ProductionStart, OneThreadIsMadeHoweverManyStart) {
  expectClean("two producers start", racingStarts(0));
}

// C047
TEST(ProductionStart, AFailedStartTakesBackItsOwnTaskOnly) {
  expectClean("the first start fails", racingStarts(1));
  expectClean("two starts fail", racingStarts(2));
}

// C233 I1
TEST(ProductionStart, AnEndBeforeTheStartNeverCrossesIt) {
  expectClean("execute || end before start", [](Execution& run) {
    auto& s = run.make<StartState>();
    run.thread("loop", [&s] { s.loopThread(2); });
    run.thread("producer", [&s] {
      s.execute(1);
      s.finished.fetch_add(1, std::memory_order_seq_cst);
    });
    run.thread("ender", [&s] {
      if (s.life.endUnstarted()) s.consume(s.inbox.close().chain);
      s.finished.fetch_add(1, std::memory_order_seq_cst);
    });
    run.finally([&s] { s.checkEnd(); });
  });
}

}  // namespace
}  // namespace millrace::explorer
