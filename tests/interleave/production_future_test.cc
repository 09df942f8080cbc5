// SPDX-License-Identifier: Apache-2.0
// Completion of a promise against listeners, cancel, waiting and one another.
#include "expect_explored.h"

#include <millrace/concurrent/future.h>

#include <gtest/gtest.h>

#include <vector>

namespace millrace::explorer {
namespace {

// Every thread is at home: callbacks run where they are started, from several threads at once.
struct AnywhereExecutor final : Executor {
  void execute(::millrace::Task task) override { task(); }
  bool tryExecute(::millrace::Task task) override {
    task();
    return true;
  }
  bool inEventLoop() const noexcept override { return home; }
  bool home = true;
};

struct PromiseState {
  AnywhereExecutor executor;
  Promise<int> promise{executor};
  Future<int> future = promise.future();
  Plain<int> written{0};
  std::vector<int> heard;  // one callback at a time writes it: that is what is checked

  void listen(int id) {
    future.addListener([this, id](const ::millrace::Result<int>&) {
      guard.write() = id;  // two at a time would be a race
      heard.push_back(id);
    });
  }
  Plain<int> guard{0};
};

// I1
TEST(ProductionFuture, NoListenerIsForgottenOrCalledTwice) {
  expectClean("complete || add || add", [](Execution& run) {
    auto& s = run.make<PromiseState>();
    run.thread("completer", [&s] { s.promise.trySuccess(7); });
    run.thread("first", [&s] { s.listen(1); });
    run.thread("second", [&s] { s.listen(2); });
    run.finally([&s] { EXPLORE_CHECK(s.heard.size() == 2, "each listener is called once"); });
  });
}

TEST(ProductionFuture, ListenersOfOneThreadAreCalledInOrder) {
  expectClean("complete || add, add", [](Execution& run) {
    auto& s = run.make<PromiseState>();
    run.thread("completer", [&s] { s.promise.trySuccess(7); });
    run.thread("listener", [&s] {
      s.listen(1);
      s.listen(2);
    });
    run.finally([&s] {
      EXPLORE_CHECK(s.heard.size() == 2 && s.heard[0] == 1 && s.heard[1] == 2, "in order, once");
    });
  });
}

TEST(ProductionFuture, OneOfCompletionAndCancelWins) {
  expectClean("complete || cancel || add", [](Execution& run) {
    auto& s = run.make<PromiseState>();
    auto& won = run.make<std::vector<int>>(2, 0);
    run.thread("completer", [&s, &won] { won[0] = s.promise.trySuccess(7) ? 1 : 0; });
    run.thread("canceller", [&s, &won] { won[1] = s.future.cancel() ? 1 : 0; });
    run.thread("listener", [&s] { s.listen(1); });
    run.finally([&s, &won] {
      EXPLORE_CHECK(won[0] + won[1] == 1, "exactly one wins");
      EXPLORE_CHECK(s.future.isCancelled() == (won[1] == 1), "and the future says which");
      EXPLORE_CHECK(s.heard.size() == 1, "the listener is called once");
    });
  });
}

TEST(ProductionFuture, UncancellableOrCancelledNeverBoth) {
  expectClean("setUncancellable || cancel", [](Execution& run) {
    auto& s = run.make<PromiseState>();
    auto& won = run.make<std::vector<int>>(2, 0);
    run.thread("worker", [&s, &won] {
      won[0] = s.promise.setUncancellable() ? 1 : 0;
      if (won[0] == 1) s.promise.setSuccess(7);
    });
    run.thread("canceller", [&s, &won] { won[1] = s.future.cancel() ? 1 : 0; });
    run.finally([&s, &won] {
      EXPLORE_CHECK(won[0] + won[1] == 1, "exactly one wins");
      EXPLORE_CHECK(s.future.isSuccess() == (won[0] == 1), "and the result agrees");
    });
  });
}

TEST(ProductionFuture, AWaiterSeesWhatWasWrittenBefore) {
  expectClean("complete || await || await", [](Execution& run) {
    auto& s = run.make<PromiseState>();
    s.executor.home = false;
    run.thread("completer", [&s] {
      s.written.write() = 1;
      s.promise.trySuccess(7);
    });
    for (const char* name : {"first", "second"}) {
      run.thread(name, [&s] {
        s.future.await();
        EXPLORE_CHECK(s.written.read() == 1, "what happened before is visible");
        EXPLORE_CHECK(s.future.result().value() == 7, "the result is there");
      });
    }
  });
}

}  // namespace
}  // namespace millrace::explorer
