// SPDX-License-Identifier: Apache-2.0
// Which engine a loop gets, and what happens when it cannot be made.
#include "support/census.h"
#include "support/engines.h"
#include "support/heap_count.h"

#include <millrace/base/error.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <sys/resource.h>
#include <unistd.h>

namespace millrace {
namespace {

// Sets MILLRACE_IO in its scope.
struct Environment {
  explicit Environment(const char* value) { ::setenv("MILLRACE_IO", value, 1); }
  ~Environment() { ::unsetenv("MILLRACE_IO"); }
};

// C120d
TEST(EngineChoice, IsEpollUnlessSomebodySaysOtherwise) {
  ::unsetenv("MILLRACE_IO");
  EXPECT_EQ(&EventLoop::handDriven()->ioType(), &io::epollType);
  EXPECT_EQ(io::automatic().type, &io::epollType);
  EventLoopGroup group(2);
  for (const EventLoop& loop : group) EXPECT_EQ(&loop.ioType(), &io::epollType);
}

// C120d
TEST(EngineChoice, FollowsTheEnvironmentAndIsReported) {
  const std::pair<const char*, const IoType*> choices[] = {{"poll", &io::pollType},
                                                           {"epoll", &io::epollType},
                                                           {"parking", &io::parkingType},
                                                           {"automatic", &io::epollType},
                                                           {"", &io::epollType}};
  for (const auto& [name, type] : choices) {
    const Environment environment(name);
    EventLoopGroup group(1);
    EXPECT_EQ(&group.begin()->ioType(), type) << name;
  }
  EXPECT_STREQ(io::epollType.name, "epoll");
  EXPECT_STREQ(io::pollType.name, "poll");
  EXPECT_STREQ(io::parkingType.name, "parking");
}

// C120d: and no other engine in its place
TEST(EngineChoice, OfIoUringIsKeptWhereItIsAllowed) {
  const IoSupport found = ioSupport();
  if (!found.uring) GTEST_SKIP() << found.why;
  EXPECT_TRUE(found.why.empty());
  EventLoopGroup group(1, io::byName("uring"));
  EventLoop& loop = *group.begin();
  EXPECT_EQ(&loop.ioType(), &io::uringType);
  EXPECT_STREQ(loop.ioType().name, "uring");
  EXPECT_TRUE(loop.submit([&] { return loop.io().ring() != nullptr; }).get());
}

// C120d: what the program says comes before the environment
TEST(EngineChoice, OfTheProgramComesFirst) {
  const Environment environment("parking");
  EventLoopGroup group(1, io::poll());
  EXPECT_EQ(&group.begin()->ioType(), &io::pollType);
}

// C120d
TEST(EngineChoice, OfAnUnknownNameIsAnErrorThatNamesTheKnownOnes) {
  const auto textOf = [](const std::function<void()>& fn) -> std::string {
    try {
      fn();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  const std::string expected =
      "no engine is called \"kqueue\"; use automatic, epoll, uring, poll, blocking or parking";
  EXPECT_EQ(textOf([] { static_cast<void>(io::byName("kqueue")); }), expected);
  const Environment environment("kqueue");
  EXPECT_EQ(textOf([] { EventLoopGroup group(1); }),
            "the environment variable MILLRACE_IO: " + expected);
}

// C120c
TEST(EngineChoice, IsCheckedBeforeAnythingIsMade) {
  EXPECT_THROW(LoopOptions().io({}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().io({&io::epollType, {}}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().io({nullptr, io::epoll().make}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().strategy({}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().chooser({}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().rejection({}), std::invalid_argument);
  EXPECT_THROW(LoopOptions().threadFactory({}), std::invalid_argument);
}

// C120c: factories that give nothing are found out at construction
TEST(EngineChoice, OfNothingIsAnErrorOfTheConstructor) {
  const LoopOptions noStrategy =
      LoopOptions().loops(2).strategy([] { return std::unique_ptr<SelectStrategy>(); });
  const LoopOptions noEngine = LoopOptions().loops(2).io(
      {&io::pollType, [] { return Result<std::unique_ptr<IoHandler>>(nullptr); }});
  const LoopOptions noChooser =
      LoopOptions().loops(2).chooser([](auto) { return std::unique_ptr<Chooser>(); });
  for (const LoopOptions* options : {&noStrategy, &noEngine, &noChooser}) {
    EXPECT_THROW(EventLoopGroup group(*options), std::invalid_argument);
  }
  EXPECT_THROW(EventLoop::handDriven(noStrategy), std::invalid_argument);
  EXPECT_THROW(EventLoop::handDriven(noEngine), std::invalid_argument);
}

// C120b: the limit of the process, really reached
TEST(EngineFailure, AtTheLimitOfDescriptorsThrowsAndLeaksNothing) {
  // UBSan needs a descriptor to look at an object; ConstructionFaults has the same without the
  // limit.
  if (!test::countsHeap()) return;
  const test::Census before = test::Census::take();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  // Room for none, for an epoll descriptor, for a whole loop and half of the second.
  const std::pair<int, std::string> cases[] = {
      {0, "epoll_create1"}, {1, "eventfd"}, {2, "epoll_create1"}, {3, "eventfd"}};
  for (const auto& [room, call] : cases) {
    limit.rlim_cur = static_cast<rlim_t>(next + room);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    std::string text = "nothing was thrown";
    int code = 0;
    try {
      EventLoopGroup group(LoopOptions().loops(3).io(io::epoll()).name("poor"));
    } catch (const Exception& e) {
      text = e.what();
      code = e.error().errnoValue();
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
    EXPECT_EQ(code, EMFILE);
    EXPECT_NE(text.find("EventLoopGroup poor (making loop " + std::to_string(room / 2 + 1) +
                        " of 3: " + call),
              std::string::npos)
        << text;
    EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
  }
  EventLoopGroup group(3, io::epoll());  // and now it can be made
  group.submit([] {}).sync();
}

}  // namespace
}  // namespace millrace
