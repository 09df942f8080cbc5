// SPDX-License-Identifier: Apache-2.0
// The explorer finds what it must find, and nothing else: litmus programs with known answers.
#include "litmus.h"

#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

namespace millrace::explorer {
namespace {

// ---------------------------------------------------------------------- store buffering

TEST(Explorer, StoreBufferingWithReleaseLetsBothReadZero) {
  const Result result = expectFailure(storeBuffering(kRelease, kAcquire), Failure::kCheck);

  EXPECT_NE(result.schedule.find("store x := 1 (into its buffer)  release"), std::string::npos)
      << result;
  expectFailure(storeBuffering(kRelaxed, kRelaxed), Failure::kCheck);
}

TEST(Explorer, StoreBufferingWithSequentialConsistencyNeverReadsTwoZeros) {
  expectClean(storeBuffering(kSeqCst, kSeqCst));
}

TEST(Explorer, AFenceForbidsStoreBuffering) {
  for (const bool fenced : {true, false}) {
    const Result result = explore({}, [fenced](Execution& run) {
      struct State {
        Atomic<int> x{0}, y{0};
        int r0 = -1, r1 = -1;
      };
      auto& s = run.make<State>();
      run.thread("left", [&s] {
        s.x.store(1, kRelaxed);
        fence(kSeqCst);
        s.r0 = s.y.load(kRelaxed);
      });
      run.thread("right", [&s, fenced] {
        s.y.store(1, kRelaxed);
        if (fenced) fence(kSeqCst);
        s.r1 = s.x.load(kRelaxed);
      });
      run.finally([&s] { EXPLORE_CHECK(s.r0 + s.r1 > 0, "one of them sees the other"); });
    });
    EXPECT_EQ(result.ok(), fenced) << result;
  }
}

TEST(Explorer, AThreadSeesItsOwnBufferedStores) {
  expectClean([](Execution& run) {
    struct State {
      Atomic<int> x{0};
    };
    auto& s = run.make<State>();
    for (const char* who : {"a", "b"}) {
      run.thread(who, [&s] {
        s.x.store(1, kRelaxed);
        EXPLORE_CHECK(s.x.load(kRelaxed) == 1, "own store is forwarded");
      });
    }
  });
}

// ---------------------------------------------------------------------- publishing

TEST(Explorer, MessagePassingWithReleaseAndAcquireIsClean) {
  expectClean(messagePassing(kRelease, kAcquire));
  expectClean(messagePassing(kSeqCst, kSeqCst));
}

TEST(Explorer, MessagePassingWithOneWeakerOrderIsARace) {
  const Result result = expectFailure(messagePassing(kRelaxed, kAcquire), Failure::kRace);
  EXPECT_NE(result.message.find("race on data"), std::string::npos) << result.message;
  expectFailure(messagePassing(kRelease, kRelaxed), Failure::kRace);
}

TEST(Explorer, AReleaseSequenceGoesThroughReadModifyWritesOnly) {
  expectClean(releaseSequence(false));
  expectFailure(releaseSequence(true), Failure::kRace);
}

TEST(Explorer, FencesPublishThroughRelaxedAccesses) {
  for (const bool fenced : {true, false}) {
    const Result result = explore({}, [fenced](Execution& run) {
      struct State {
        Plain<int> data{0};
        Atomic<int> flag{0};
      };
      auto& s = run.make<State>();
      run.thread("writer", [&s] {
        s.data.write() = 1;
        fence(kRelease);
        s.flag.store(1, kRelaxed);
      });
      run.thread("reader", [&s, fenced] {
        if (s.flag.load(kRelaxed) == 0) return;
        if (fenced) fence(kAcquire);
        EXPLORE_CHECK(s.data.read() == 1, "data was published");
      });
    });
    EXPECT_EQ(result.failure, fenced ? Failure::kNone : Failure::kRace) << result;
  }
}

// ---------------------------------------------------------------------- atomicity

TEST(Explorer, TwoFetchAddsNeverLoseOne) {
  expectClean([](Execution& run) {
    struct State {
      Atomic<unsigned> n{0};
    };
    auto& s = run.make<State>();
    for (const char* who : {"a", "b", "c"}) run.thread(who, [&s] { s.n.fetch_add(1, kRelaxed); });
    run.finally([&s] { EXPLORE_CHECK(s.n.load() == 3, "all counted"); });
  });
}

TEST(Explorer, LoadThenStoreLosesAnIncrement) {
  expectFailure(
      [](Execution& run) {
        struct State {
          Atomic<int> n{0};
        };
        auto& s = run.make<State>();
        for (const char* who : {"a", "b"}) run.thread(who, [&s] { s.n.store(s.n.load() + 1); });
        run.finally([&s] { EXPLORE_CHECK(s.n.load() == 2, "both counted"); });
      },
      Failure::kCheck);
}

TEST(Explorer, AtomicsOfEveryKindBehaveLikeStdAtomic) {
  enum class Color : uint8_t { kRed, kGreen };
  // Outside an execution and inside of one.
  const auto check = [] {
    Atomic<int8_t> small{127};
    EXPLORE_CHECK(small.fetch_add(1) == 127 && small.load() == -128, "wraps");
    EXPLORE_CHECK(small.fetch_sub(1) == -128 && small.load() == 127, "wraps back");
    Atomic<uint64_t> mask{0xF0};
    EXPLORE_CHECK(
        mask.fetch_or(0x0F) == 0xF0 && mask.fetch_and(0x3C) == 0xFF && mask.fetch_xor(1) == 0x3C,
        "masks");
    Atomic<Color> color{Color::kRed};
    Color expected = Color::kGreen;
    EXPLORE_CHECK(!color.compare_exchange_strong(expected, Color::kGreen, kSeqCst, kRelaxed),
                  "differs");
    EXPLORE_CHECK(expected == Color::kRed && color.compare_exchange_weak(expected, Color::kGreen),
                  "equal");
    int array[3] = {};
    Atomic<int*> pointer;
    EXPLORE_CHECK(pointer.load() == nullptr && pointer.exchange(array) == nullptr, "pointer");
    EXPLORE_CHECK(pointer.fetch_add(2) == array && pointer.fetch_sub(1) == array + 2,
                  "pointer arithmetic");
    EXPLORE_CHECK(pointer.load() == array + 1, "pointer arithmetic");
    Atomic<bool> yes{true};
    EXPLORE_CHECK(yes.exchange(false) && !yes.load(), "bool");
  };
  check();
  expectClean([&](Execution& run) {
    check();
    run.thread("only", check);
    run.finally(check);
  });
}

// ---------------------------------------------------------------------- lifetime

TEST(Explorer, ReleasingAReferenceWithoutAcquireRacesWithTheDestructor) {
  const auto scenario = [](MemoryOrder order) {
    return [order](Execution& run) {
      struct Node {
        Plain<int> payload{0};
        Atomic<int> references{2};
      };
      auto* node = new Node;
      for (const char* who : {"a", "b"}) {
        run.thread(who, [node, order] {
          (void)node->payload.read();
          if (node->references.fetch_sub(1, order) == 1) delete node;
        });
      }
    };
  };
  expectClean(scenario(std::memory_order_acq_rel));
  expectFailure(scenario(kRelaxed), Failure::kRace);
}

TEST(Explorer, UseAfterDestructionIsFound) {
  const Result result = expectFailure(
      [](Execution& run) {
        struct State {
          std::optional<Atomic<int>> value;
          Atomic<bool> gone{false};
        };
        auto& s = run.make<State>();
        s.value.emplace(1);
        auto* value = &*s.value;
        run.thread("owner", [&s] {
          s.value.reset();
          s.gone.store(true, kRelease);
        });
        run.thread("late", [&s, value] {
          if (s.gone.load(kAcquire)) value->store(2);
        });
      },
      Failure::kUseAfterDestroy);
  EXPECT_NE(result.message.find("late"), std::string::npos) << result.message;
}

static_assert(sizeof(Atomic<bool>) == sizeof(bool) && sizeof(Atomic<uint32_t>) == sizeof(uint32_t));
constinit Atomic<int*> constantPointer{nullptr};

TEST(Explorer, ANewObjectAtAnOldAddressIsANewObject) {
  expectClean([](Execution& run) {
    run.thread("only", [] {
      for (int i = 0; i < 3; ++i) {
        auto node = std::make_unique<Atomic<int>>(i);
        EXPLORE_CHECK(node->load() == i, "fresh");
        node->store(9, kRelaxed);  // still in the buffer when the node dies
      }
    });
  });
}

TEST(Explorer, ObjectsMadeBeforeTheExecutionBeginEveryTimeWithTheirValue) {
  static Atomic<int> global{7};
  for (int i = 0; i < 2; ++i) {
    expectClean([](Execution& run) {
      run.thread("a", [] { global.fetch_add(1); });
      run.thread("b", [] { global.fetch_add(1); });
      run.finally([] { EXPLORE_CHECK(global.load() == 9, "two more than at first"); });
    });
  }
  EXPECT_EQ(global.load(), 7);
}

// ---------------------------------------------------------------------- failures of other kinds

TEST(Explorer, AnExceptionOfAThreadIsAFailure) {
  const Result result = expectFailure(
      [](Execution& run) {
        struct State {
          Atomic<int> x{0};
        };
        auto& s = run.make<State>();
        run.thread("a", [&s] { s.x.store(1); });
        run.thread("thrower", [&s] {
          if (s.x.load() == 1) throw std::runtime_error("seen one");
        });
      },
      Failure::kException);
  EXPECT_EQ(result.message, "thrower threw: seen one");
}

TEST(Explorer, ExceptionsCaughtWithinThreadsAreNobodysBusiness) {
  expectClean([](Execution& run) {
    struct State {
      Atomic<int> x{0};
    };
    auto& s = run.make<State>();
    for (const char* who : {"a", "b"}) {
      run.thread(who, [&s] {
        try {
          throw std::runtime_error("inside");
        } catch (const std::exception& error) {
          s.x.fetch_add(1);  // the other thread throws meanwhile
          EXPLORE_CHECK(std::string(error.what()) == "inside", "still the same exception");
        }
      });
    }
  });
}

}  // namespace
}  // namespace millrace::explorer
