// SPDX-License-Identifier: Apache-2.0
// Loops do not survive a fork: their threads stay in the parent. The child is told, and nothing
// hangs.
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/global_executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::textOf;

/// What fails in the child, which ends without destructors; "" if all is well.
std::string inChild(const std::function<std::string()>& check) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string wrong = check();
    const bool told = wrong.empty() || ::write(ends[1], wrong.data(), wrong.size()) > 0;
    // Not by _exit(): ThreadSanitizer would miss the parent's threads there.
    ::syscall(SYS_exit_group, told ? 0 : 2);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[256];
  for (;;) {
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = -1;
  if (::waitpid(child, &status, 0) != child || status != 0) {
    text += " (the child ended with status " + std::to_string(status) + ")";
  }
  return text;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// The text of the Exception that the call must throw in a child.
std::string forkedText(const std::function<void()>& call) {
  const std::string text = textOf<Exception>(call);
  if (has(text, "make a new EventLoopGroup after fork()")) return "";
  return "not refused, but: " + text + "\n";
}

class Fork : public testing::TestWithParam<bool> {  // whether the loop has a thread
 protected:
  Fork() : group(std::make_unique<EventLoopGroup>(LoopOptions().loops(1).name("parent"))) {
    if (GetParam()) group->next().submit([] {}).get();
  }
  std::unique_ptr<EventLoopGroup> group;
};

INSTANTIATE_TEST_SUITE_P(Loops, Fork, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Started" : "Unstarted"; });

TEST_P(Fork, EveryPostInTheChildIsRefusedWithTheRemedy) {
  EventLoop& loop = group->next();

  EXPECT_EQ(inChild([&] {
              std::string wrong;
              wrong += forkedText([&] { loop.execute([] {}); });
              wrong += forkedText([&] { loop.lazyExecute([] {}); });
              wrong += forkedText([&] { static_cast<void>(loop.submit([] {})); });
              wrong += forkedText([&] { static_cast<void>(loop.schedule(1s, [] {})); });
              wrong += forkedText([&] { loop.executeAfterEventLoopIteration([] {}); });
              if (loop.tryExecute([] {})) wrong += "tryExecute() took a task\n";
              if (loop.pendingTasks() != 0) wrong += "a task was queued\n";
              if (!has(textOf<Exception>([&] { loop.execute([] {}); }), "mr-parent-1")) {
                wrong += "the loop is not named\n";
              }
              return wrong;
            }),
            "");

  EXPECT_EQ(loop.submit([] { return 1; }).get(), 1);  // the parent's is as before
}

TEST_P(Fork, TheChildCanDestroyTheGroupWithoutWaiting) {
  test::LogCapture log;  // the child has a copy
  EXPECT_EQ(inChild([&] {
              group.reset();
              return log.count(LogLevel::error) == 0 ? std::string() : std::string("it has waited");
            }),
            "");

  EXPECT_EQ(group->next().submit([] { return 1; }).get(), 1);
  EXPECT_EQ(group->next().state(), EventLoop::State::started);
}

TEST_P(Fork, ShutdownInTheChildDoesNothing) {
  EXPECT_EQ(inChild([&] {
              Future<ShutdownReport> end = group->shutdownGracefully();
              return end.isDone() ? std::string("it ended") : std::string();
            }),
            "");

  EXPECT_EQ(group->next().submit([] { return 1; }).get(), 1);
  EXPECT_FALSE(group->isShuttingDown());
}

TEST_P(Fork, AGroupThatHadEndedBeforeIsDestroyedInTheChildToo) {
  group->shutdownGracefully().get();

  EXPECT_EQ(inChild([&] {
              if (!group->isTerminated()) return std::string("not terminated");
              group.reset();
              return std::string();
            }),
            "");
}

TEST_P(Fork, TheChildCanMakeLoopsOfItsOwn) {
  EXPECT_EQ(inChild([&] {
              Ref<EventLoop> mine = EventLoop::handDriven();
              int ran = 0;
              mine->execute([&] { ++ran; });
              mine->runNow();
              return ran == 1 ? std::string() : std::string("the child's own loop does not run");
            }),
            "");
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MR_NO_THREADS_AFTER_FORK 1  // it ends processes that make threads in a forked child
#endif
#endif
#if !defined(MR_NO_THREADS_AFTER_FORK)
TEST_P(Fork, TheChildCanMakeAGroupOfItsOwnWithThreads) {
  EXPECT_EQ(inChild([&] {
              EventLoopGroup mine(2);
              const int sum =
                  mine.submit([] { return 1; }).get() + mine.submit([] { return 2; }).get();
              mine.shutdownGracefully().get();
              return sum == 3 ? std::string() : std::string("the child's own group does not run");
            }),
            "");
}
#endif

TEST(ForkHandDriven, TheParentsLoopIsNotRunInTheChild) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  loop->runNow();

  EXPECT_EQ(inChild([&] { return forkedText([&] { loop->runNow(); }); }), "");
  EXPECT_EQ(inChild([&] {
              loop = nullptr;  // and dropping it does not run what it holds
              return std::string();
            }),
            "");

  loop->execute([] {});
  EXPECT_EQ(loop->runNow(), 1U);
}

#if !defined(MR_NO_THREADS_AFTER_FORK)
// The global executor begins anew in the child, whatever it did in the parent.
TEST(ForkGlobal, TheGlobalExecutorWorksInTheChild) {
  const auto worksInChild = [] {
    return inChild([] {
      std::atomic<bool> ran{false};
      globalExecutor().execute([&ran] { ran = true; });
      awaitGlobalExecutor();
      return std::string(ran ? "" : "its task did not run");
    });
  };
  globalExecutor().execute([] {});
  awaitGlobalExecutor();
  EXPECT_EQ(worksInChild(), "");
  std::latch go(1);
  std::latch inside(1);
  globalExecutor().execute([&] {
    inside.count_down();
    go.wait();
  });
  inside.wait();
  EXPECT_EQ(worksInChild(), "");
  go.count_down();
  awaitGlobalExecutor();
}
#endif

}  // namespace
}  // namespace millrace
