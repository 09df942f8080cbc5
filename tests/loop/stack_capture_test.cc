// SPDX-License-Identifier: Apache-2.0
#include "loop/stack_capture.h"

#include "loop/function_names.h"

#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

namespace quarry {

struct Cart {
  std::mutex mutex;
  std::condition_variable came;
  bool isHere = false;
  bool isAwaited = false;
};

// In pthread_cond_wait ThreadSanitizer lets signals through.
[[gnu::noinline]] void waitForACart(Cart& cart) {
  std::unique_lock lock(cart.mutex);
  cart.isAwaited = true;
  while (!cart.isHere) cart.came.wait(lock);
}

}  // namespace quarry

namespace millrace {
namespace {

using namespace std::chrono_literals;

using Handler = void (*)(int);

Handler handlerOf(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

std::vector<Handler> allHandlers() {
  std::vector<Handler> all;
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) all.push_back(handlerOf(signal));
  return all;
}

/// A thread in quarry::waitForACart until the end of the scope.
class Waiting {
 public:
  explicit Waiting(bool blocksSignals = false) {
    thread_ = std::thread([this, blocksSignals] {
      sigset_t all;
      ::sigfillset(&all);
      if (blocksSignals) ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      id_.store(threadId());
      id_.notify_one();
      quarry::waitForACart(cart_);
      ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);  // what is pending arrives here
    });
    id_.wait(0);
    // Really in the wait: ThreadSanitizer keeps a signal that comes just before it.
    for (bool awaited = false; !awaited; std::this_thread::yield()) {
      std::lock_guard lock(cart_.mutex);
      awaited = cart_.isAwaited;
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    {
      std::lock_guard lock(cart_.mutex);
      cart_.isHere = true;
      cart_.came.notify_one();
    }
    thread_.join();
  }
  std::int64_t id() const { return id_.load(); }

 private:
  quarry::Cart cart_;
  std::atomic<std::int64_t> id_{0};
  std::thread thread_;
};

void ignored(int) {}

TEST(StackCapture, FindsTheFunctionThatAThreadIsIn) {
  StackCapture stacks;
  const Waiting waiting;

  // It says its number a little before it waits.
  std::string found;
  const Deadline limit = Deadline::after(30s);
  while (found.find("waitForACart") == std::string::npos && !limit.isDue(Clock::real().nanos())) {
    const auto places = placesOf(stacks.of(waiting.id(), limit).frames);
    const CodePlace* place = blockingFunction(places);
    found = place == nullptr ? "" : place->text();
    if (!canNameEveryFunction()) break;
  }

  if (canNameEveryFunction()) {
    EXPECT_EQ(found, "quarry::waitForACart(quarry::Cart&)");
  }
}

TEST(StackCapture, PutsTheSignalBackAsItWas) {
  const auto before = allHandlers();
  {
    const StackCapture one;
    const StackCapture two;
    EXPECT_EQ(one.signal(), two.signal());
    EXPECT_NE(allHandlers(), before);
  }
  EXPECT_EQ(allHandlers(), before);
}

TEST(StackCapture, LeavesSignalsAloneThatSomebodyHandles) {
  const Handler before = ::signal(SIGRTMAX - 1, &ignored);
  {
    const StackCapture stacks;
    EXPECT_NE(stacks.signal(), 0);
    EXPECT_NE(stacks.signal(), SIGRTMAX - 1);
    EXPECT_EQ(handlerOf(SIGRTMAX - 1), &ignored);
  }
  EXPECT_EQ(handlerOf(SIGRTMAX - 1), &ignored);
  ::signal(SIGRTMAX - 1, before);
}

TEST(StackCapture, LeavesAHandlerInPlaceThatReplacedItsOwn) {
  int taken = 0;
  {
    const StackCapture stacks;
    taken = stacks.signal();
    ::signal(taken, &ignored);
  }
  EXPECT_EQ(handlerOf(taken), &ignored);
  ::signal(taken, SIG_DFL);
}

TEST(StackCapture, IsEmptyWithoutAFreeSignal) {
  std::vector<Handler> before;
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) {
    before.push_back(::signal(signal, &ignored));
  }
  {
    StackCapture stacks;
    EXPECT_EQ(stacks.signal(), 0);
    EXPECT_TRUE(stacks.of(threadId(), Deadline::after(30s)).frames.empty());
  }
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) {
    ::signal(signal, before[static_cast<std::size_t>(signal - SIGRTMIN)]);
  }
}

// A signal that arrives late must not end the process.
TEST(StackCapture, OfAThreadThatBlocksTheSignalIsEmptyAndDoesNoHarmLater) {
  const auto before = allHandlers();
  {
    const Waiting waiting(true);
    {
      StackCapture stacks;
      EXPECT_TRUE(stacks.of(waiting.id(), Deadline::past()).frames.empty());
    }
    EXPECT_NE(allHandlers(), before);
  }
  { const StackCapture last; }
  EXPECT_EQ(allHandlers(), before);
}

TEST(StackCapture, IgnoresSignalsOfOthers) {
  const StackCapture stacks;

  ::raise(stacks.signal());

  SUCCEED();
}

}  // namespace
}  // namespace millrace
