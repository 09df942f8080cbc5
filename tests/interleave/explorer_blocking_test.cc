// SPDX-License-Identifier: Apache-2.0
// Mutexes, futexes, spinning and virtual time under the explorer.
#include "litmus.h"

#include <mutex>
#include <optional>
#include <string>

namespace millrace::explorer {
namespace {

/// Two or three threads count under a lock; `Lock` decides whether they exclude each other.
template <class Lock>
Scenario counting(int threads) {
  return [threads](Execution& run) {
    struct State {
      Lock lock;
      Plain<int> n{0};
    };
    auto& s = run.make<State>();
    static const char* const names[] = {"a", "b", "c"};
    for (int i = 0; i < threads; ++i) {
      run.thread(names[i], [&s] {
        std::lock_guard guard(s.lock);
        ++s.n.write();
      });
    }
    run.finally([&s, threads] { EXPLORE_CHECK(s.n.read() == threads, "all counted"); });
  };
}

TEST(ExplorerBlocking, AMutexExcludes) { expectClean(counting<Mutex>(3)); }

TEST(ExplorerBlocking, TwoMutexesInOppositeOrderDeadlock) {
  const Result result = expectFailure(
      [](Execution& run) {
        struct State {
          Mutex a, b;
        };
        auto& s = run.make<State>();
        name(&s.a, "A");
        name(&s.b, "B");
        run.thread("ab", [&s] {
          std::lock_guard first(s.a);
          std::lock_guard second(s.b);
        });
        run.thread("ba", [&s] {
          std::lock_guard first(s.b);
          std::lock_guard second(s.a);
        });
      },
      Failure::kDeadlock);
  EXPECT_EQ(result.message,
            "nobody can move: ab waits for B held by ba, ba waits for A held by ab");
}

TEST(ExplorerBlocking, TryLockAnswersBothWays) {
  int taken = 0, refused = 0;
  expectClean([&](Execution& run) {
    auto& mutex = run.make<Mutex>();
    run.thread("holder", [&mutex] { std::lock_guard guard(mutex); });
    run.thread("trier", [&mutex, &taken, &refused] {
      std::unique_lock attempt(mutex, std::try_to_lock);
      ++(attempt.owns_lock() ? taken : refused);
    });
  });
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(ExplorerBlocking, UnlockingAMutexOfSomeoneElseIsMisuse) {
  expectFailure(
      [](Execution& run) {
        auto& mutex = run.make<Mutex>();
        run.thread("a", [&mutex] { mutex.unlock(); });
      },
      Failure::kMisuse);
}

// ---------------------------------------------------------------------- spinning

template <MemoryOrder acquireOrder, MemoryOrder releaseOrder>
struct SpinLock {
  Atomic<bool> held{false};
  void lock() {
    while (held.exchange(true, acquireOrder)) cpuRelax();
  }
  void unlock() { held.store(false, releaseOrder); }
};

TEST(ExplorerBlocking, ASpinLockExcludes) {
  expectClean(counting<SpinLock<kAcquire, kRelease>>(2));
  expectClean(counting<SpinLock<kAcquire, kRelease>>(3));
}

TEST(ExplorerBlocking, ASpinLockWithWeakOrdersIsARace) {
  expectFailure(counting<SpinLock<kRelaxed, kRelease>>(2), Failure::kRace);
  expectFailure(counting<SpinLock<kAcquire, kRelaxed>>(2), Failure::kRace);
}

Scenario spinningForNothing(bool pause) {
  return [pause](Execution& run) {
    auto& flag = run.make<Atomic<int>>(0);
    run.thread("spinner", [&flag, pause] {
      while (flag.load(kAcquire) != 2) {
        if (pause) cpuRelax();
      }
    });
    run.thread("setter", [&flag] { flag.store(1, kRelease); });
  };
}

TEST(ExplorerBlocking, SpinningForWhatNeverComesIsADeadlock) {
  const Result result = expectFailure(spinningForNothing(true), Failure::kDeadlock);
  EXPECT_NE(result.message.find("spinner spins at"), std::string::npos) << result.message;
}

TEST(ExplorerBlocking, SpinningWithoutAPauseHasNoEnd) {
  expectFailure(spinningForNothing(false), Failure::kStepLimit);
}

TEST(ExplorerBlocking, ALoopThatCountsItsRoundsGivesUp) {
  expectClean([](Execution& run) {
    auto& flag = run.make<Atomic<int>>(0);
    run.thread("spinner", [&flag] {
      for (int i = 0; i < 10 && flag.load(kAcquire) == 0; ++i) cpuRelax();
    });
  });
  int gaveUp = 0;
  Options options;
  options.relax = Relax::kFree;
  expectClean(
      [&gaveUp](Execution& run) {
        auto& flag = run.make<Atomic<int>>(0);
        run.thread("spinner", [&flag, &gaveUp] {
          int i = 0;
          while (i < 3 && flag.load(kAcquire) == 0) ++i, cpuRelax();
          if (i == 3) ++gaveUp;
        });
        run.thread("setter", [&flag] { flag.store(1, kRelease); });
      },
      options);
  EXPECT_GT(gaveUp, 0);
}

// ---------------------------------------------------------------------- futex

/// Sleeps if the word says so. `recheck`: the kernel compares the word again, as a futex does.
Scenario sleeper(bool recheck) {
  return [recheck](Execution& run) {
    struct State {
      Atomic<uint32_t> word{0};
      Atomic<uint32_t> bell{0};
    };
    auto& s = run.make<State>();
    name(&s.word, "word");
    name(&s.bell, "bell");
    run.thread("sleeper", [&s, recheck] {
      while (s.word.load(kAcquire) == 0) futexWait(recheck ? s.word : s.bell, 0);
    });
    run.thread("waker", [&s, recheck] {
      s.word.store(1, kRelease);
      futexWake(recheck ? s.word : s.bell, 1);
    });
  };
}

TEST(ExplorerBlocking, ASleeperThatDoesNotRecheckMissesItsWakeup) {
  expectClean(sleeper(true));
  const Result result = expectFailure(sleeper(false), Failure::kDeadlock);
  EXPECT_NE(result.message.find("sleeper sleeps on bell"), std::string::npos) << result.message;
}

/// 0 free, 1 held, 2 held and somebody sleeps.
template <bool alwaysWake>
struct FutexLock {
  Atomic<uint32_t> word{0};

  void lock() {
    uint32_t seen = 0;
    if (word.compare_exchange_strong(seen, 1, kAcquire)) return;
    while (word.exchange(2, kAcquire) != 0) futexWait(word, 2);
  }
  void unlock() {
    const uint32_t before = word.exchange(0, kRelease);
    if (alwaysWake ? before == 2 : before == 3) futexWake(word, 1);
  }
};

TEST(ExplorerBlocking, AFutexMutexExcludesAndNeverSleepsForever) {
  expectClean(counting<FutexLock<true>>(2));
  expectClean(counting<FutexLock<true>>(3));
  Options options;
  options.spuriousWakeups = 1;
  expectClean(counting<FutexLock<true>>(3), options);
}

TEST(ExplorerBlocking, AFutexMutexThatForgetsToWakeDeadlocks) {
  expectFailure(counting<FutexLock<false>>(2), Failure::kDeadlock);
}

TEST(ExplorerBlocking, WakingOneOfTwoWakesOne) {
  expectFailure(
      [](Execution& run) {
        auto& word = run.make<Atomic<uint32_t>>(0U);
        for (const char* who : {"s1", "s2"}) {
          run.thread(who, [&word] {
            while (word.load(kAcquire) == 0) futexWait(word, 0);
          });
        }
        run.thread("waker", [&word] {
          word.store(1, kRelease);
          futexWake(word, 1);
        });
      },
      Failure::kDeadlock);
}

// As in the kernel: the address counts, not what is there.
TEST(ExplorerBlocking, AFutexMayBeGoneWhenItIsWoken) {
  expectClean([](Execution& run) {
    struct State {
      std::optional<Atomic<uint32_t>> word{0U};
    };
    auto& s = run.make<State>();
    auto* word = &*s.word;
    run.thread("owner", [&s] {
      while (s.word->load(kAcquire) == 0) futexWait(*s.word, 0);
      s.word.reset();
    });
    run.thread("waker", [word] {
      word->store(1, kRelease);
      futexWake(*word, 1);
    });
  });
}

TEST(ExplorerBlocking, TimePassesWhenNobodyCanMove) {
  expectClean([](Execution& run) {
    auto& word = run.make<Atomic<uint32_t>>(0U);
    run.thread("late", [&word] {
      EXPLORE_CHECK(futexWait(word, 0, 200) == FutexResult::kTimedOut, "nobody wakes it");
      EXPLORE_CHECK(now() == 200, "at its deadline");
    });
    run.thread("early", [&word] {
      EXPLORE_CHECK(futexWait(word, 0, 100) == FutexResult::kTimedOut, "nobody wakes it");
      EXPLORE_CHECK(now() == 100, "at its deadline");
    });
  });
}

}  // namespace
}  // namespace millrace::explorer
