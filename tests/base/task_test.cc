// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/task.h>

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

struct Counts {
  int made = 0;
  int moved = 0;
  int died = 0;
  int ran = 0;
};

// A callable of about `Size` bytes that counts what happens to it.
template <std::size_t Size, bool kNoexceptMove = true>
struct Probe {
  explicit Probe(Counts& c) : counts(&c) { ++counts->made; }
  Probe(Probe&& other) noexcept(kNoexceptMove) : counts(other.counts) { ++counts->moved; }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() { ++counts->died; }
  void operator()() { ++counts->ran; }

  Counts* counts;
  std::array<char, Size - sizeof(Counts*)> padding{};
};

using Small = Probe<Task::kInPlace>;
using Large = Probe<Task::kInPlace + 8>;

// What moving the Task around cost in moves of the callable.
template <class P>
Counts moveThrice() {
  Counts counts;
  {
    Task first{P(counts)};
    const int movesToGetIn = counts.moved;
    Task second(std::move(first));
    Task third;
    third = std::move(second);
    Task fourth(std::move(third));
    counts.moved -= movesToGetIn;
    EXPECT_FALSE(first);  // NOLINT: that a moved-from Task is empty is its contract
    EXPECT_FALSE(third);  // NOLINT
    fourth();
    fourth();
  }
  return counts;
}

int callsOfFunction = 0;
void plainFunction() { ++callsOfFunction; }

TEST(Task, HasRoomForFortyEightBytes) {
  EXPECT_EQ(Task::kInPlace, 48u);
  EXPECT_EQ(sizeof(Task), 56u);
}

TEST(Task, MadeFromNothingIsEmpty) {
  Task none;
  Task null(nullptr);

  EXPECT_FALSE(none);
  EXPECT_FALSE(null);
  EXPECT_EQ(none.type(), nullptr);
}

TEST(Task, KeepsSmallCallablesInPlace) {
  const Counts counts = moveThrice<Small>();

  EXPECT_EQ(counts.moved, 3);
  EXPECT_EQ(counts.ran, 2);
  EXPECT_EQ(counts.died, 1 + 1 + 3);  // the argument, the last home, one for each move
}

TEST(Task, KeepsLargeCallablesOnTheHeapAndMovesThePointerOnly) {
  const Counts counts = moveThrice<Large>();

  EXPECT_EQ(counts.moved, 0);
  EXPECT_EQ(counts.ran, 2);
  EXPECT_EQ(counts.died, 2);
}

TEST(Task, KeepsCallablesWhoseMoveMayThrowOnTheHeap) {
  const Counts counts = moveThrice<Probe<16, false>>();

  EXPECT_EQ(counts.moved, 0);
  EXPECT_EQ(counts.died, 2);
}

TEST(Task, KeepsOverAlignedCallablesOnTheHeap) {
  struct alignas(64) Wide {
    const void** seen;
    void operator()() const { *seen = this; }
  };
  const void* seen = nullptr;
  Task task(Wide{&seen});

  task();

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen) % 64, 0u);
}

TEST(Task, AssignmentDestroysTheOldCallableOnce) {
  Counts old;
  Counts fresh;
  Task task{Small(old)};
  const int before = old.died;

  task = Task(Small(fresh));

  EXPECT_EQ(old.died, before + 1);
  task();
  EXPECT_EQ(fresh.ran, 1);
  EXPECT_EQ(old.ran, 0);
}

TEST(Task, AssignmentToItselfChangesNothing) {
  Counts counts;
  Task task{Small(counts)};
  Task& same = task;

  task = std::move(same);

  ASSERT_TRUE(task);
  task();
  EXPECT_EQ(counts.ran, 1);
}

TEST(Task, ResetDestroysTheCallableAtOnce) {
  auto held = std::make_shared<int>(1);
  Task task([held] {});
  EXPECT_EQ(held.use_count(), 2);

  task.reset();
  task.reset();

  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(task);
}

TEST(Task, IsEmptyWhileItsCallableIsBeingDestroyed) {
  struct Nosy {
    explicit Nosy(Task& t, bool& e) : task(&t), empty(&e) {}
    Nosy(Nosy&& other) noexcept : task(std::exchange(other.task, nullptr)), empty(other.empty) {}
    Nosy(const Nosy&) = delete;
    Nosy& operator=(const Nosy&) = delete;
    ~Nosy() {
      if (task != nullptr) *empty = !*task;
    }
    void operator()() {}
    Task* task;
    bool* empty;
  };
  bool empty = false;
  Task task;
  task = Task(Nosy(task, empty));

  task.reset();

  EXPECT_TRUE(empty);
}

TEST(Task, OwnsMoveOnlyCallables) {
  int result = 0;
  Task task([value = std::make_unique<int>(7), &result] { result = *value; });

  Task moved(std::move(task));
  moved();

  EXPECT_EQ(result, 7);
}

TEST(Task, CopiesAnLvalueCallable) {
  int runs = 0;
  const auto lambda = [&runs] { ++runs; };
  Task task(lambda);

  task();
  lambda();

  EXPECT_EQ(runs, 2);
}

TEST(Task, RunsFunctionsAndStdFunctions) {
  std::function<int()> callable = [] { return ++callsOfFunction; };
  callsOfFunction = 0;

  Task{plainFunction}();
  Task{&plainFunction}();
  Task{callable}();

  EXPECT_EQ(callsOfFunction, 3);
}

TEST(Task, MadeFromANullFunctionIsEmpty) {
  void (*none)() = nullptr;
  std::function<void()> empty;

  EXPECT_FALSE(Task(none));
  EXPECT_FALSE(Task(empty));
  EXPECT_FALSE(Task(std::function<void()>()));
}

TEST(Task, LetsExceptionsThrough) {
  Task task([] { throw std::runtime_error("from the task"); });

  EXPECT_THROW(task(), std::runtime_error);
  EXPECT_TRUE(task);
}

TEST(Task, NamesTheTypeOfItsCallable) {
  Counts counts;
  Task task{Small(counts)};

  ASSERT_NE(task.type(), nullptr);
  EXPECT_EQ(*task.type(), typeid(Small));
}

TEST(Task, ThrowingWhileItIsMadeLeavesNothingBehind) {
  struct Thrower {
    Thrower() = default;
    Thrower(const Thrower&) { throw std::runtime_error("no copies"); }
    void operator()() const {}
    std::string held = "a text that is too long to be stored in place";
  };
  const Thrower thrower;

  EXPECT_THROW(Task{thrower}, std::runtime_error);
}

}  // namespace
}  // namespace millrace
