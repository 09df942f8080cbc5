// SPDX-License-Identifier: Apache-2.0
// Making groups: how many loops, what is refused, and what is left when it fails half way.
#include "support/census.h"
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Census;
using test::EngineProbe;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kThreadsVariable = "MILLRACE_EVENT_LOOP_THREADS";

// C020
TEST(EventLoopGroupMake, HasTwiceAsManyLoopsAsProcessorsByDefault) {
  ::unsetenv(kThreadsVariable);
  EventLoopGroup none;
  EventLoopGroup zero(0);
  EventLoopGroup options{LoopOptions()};

  const auto expected = static_cast<std::size_t>(2 * availableCpus());
  EXPECT_GE(expected, 2U);
  EXPECT_EQ(none.size(), expected);
  EXPECT_EQ(zero.size(), expected);
  EXPECT_EQ(options.size(), expected);
  EXPECT_EQ(defaultLoopCount(), 2 * availableCpus());
}

// C020
TEST(EventLoopGroupMake, TheEnvironmentCanSayHowMany) {
  ::setenv(kThreadsVariable, "3", 1);
  EventLoopGroup group;
  EventLoopGroup given(2);

  EXPECT_EQ(group.size(), 3U);
  EXPECT_EQ(given.size(), 2U);  // what the program says counts more
  ::unsetenv(kThreadsVariable);
}

// C020: never below 1, whatever the environment says
TEST(EventLoopGroupMake, NonsenseInTheEnvironmentIsIgnoredWithAWarning) {
  for (const char* text : {"0", "-4", "many", "3x", ""}) {
    test::LogCapture log;
    ::setenv(kThreadsVariable, text, 1);

    EXPECT_EQ(defaultLoopCount(), 2 * availableCpus());
    EXPECT_EQ(log.count(LogLevel::warn), 1U);
    EXPECT_TRUE(log.contains(std::string(kThreadsVariable) + "=\"" + text + "\" ignored"));
  }
  ::unsetenv(kThreadsVariable);
}

// C021
TEST(EventLoopGroupMake, ANegativeNumberOfLoopsIsAnErrorThatNamesIt) {
  test::FaultScript calls;

  EXPECT_THAT(textOf<std::invalid_argument>([] { EventLoopGroup group(-1); }),
              AllOf(HasSubstr("loops(-1)"), HasSubstr("negative"), HasSubstr("0 for the default")));
  EXPECT_THROW(EventLoopGroup(-7, io::poll()), std::invalid_argument);

  EXPECT_EQ(calls.total(), 0U);  // nothing was opened
}

// C120c
TEST(EventLoopGroupMake, OptionsThatMakeNoSenseAreRefusedWhenTheyAreSet) {
  const std::vector<std::pair<std::function<void()>, std::string>> wrong{
      {[] { LoopOptions().ioRatio(0); }, "ioRatio(0): must be 1 to 100"},
      {[] { LoopOptions().ioRatio(101); }, "ioRatio(101): must be 1 to 100"},
      {[] { LoopOptions().ioRatio(-3); }, "ioRatio(-3)"},
      {[] { LoopOptions().io({}); }, "io(): the engine factory is empty; use io::epoll()"},
      {[] { LoopOptions().rejection(nullptr); }, "rejection(): the handler is empty"},
      {[] { LoopOptions().strategy(nullptr); }, "strategy(): the factory is empty"},
      {[] { LoopOptions().chooser(nullptr); }, "chooser(): the factory is empty"},
      {[] { LoopOptions().threadFactory(nullptr); }, "threadFactory(): the factory is empty"},
      {[] { LoopOptions().spin(-1ns); }, "spin(): the time must not be negative"},
      {[] { LoopOptions().errorPause(-1ns); }, "errorPause(): the time must not be negative"},
      {[] { LoopOptions().watchdog(-1ns); }, "watchdog(): the threshold must not be negative"},
      {[] {
         static_cast<void>(io::epoll({0, true}));
       },
       "io::epoll(): an event array of 0"},
      {[] { static_cast<void>(io::byName("kqueue")); },
       "no engine is called \"kqueue\"; use automatic, epoll, uring, poll"}};

  for (const auto& [call, text] : wrong) {
    EXPECT_THAT(textOf<std::invalid_argument>(call), HasSubstr(text));
  }
  EventLoopGroup group(1);
  EXPECT_THAT(textOf<std::invalid_argument>([&] { group.next().setIoRatio(0); }),
              HasSubstr("ioRatio(0): must be 1 to 100"));
  EXPECT_THROW(group.next().setIoRatio(101), std::invalid_argument);
  EXPECT_EQ(group.next().ioRatio(), 50);
}

/// The text of the Exception that making a group of four gives.
std::string makingFourFails(const IoFactory& engine) {
  return textOf<Exception>(
      [&] { EventLoopGroup group(LoopOptions().loops(4).name("half").io(engine)); });
}

// C025 C120b
TEST(EventLoopGroupMake, FailsWithoutATraceWhenDescriptorsRunOut) {
  const Census before = Census::take();
  for (const char* call : {"epoll_create1", "eventfd", "epoll_ctl"}) {
    test::FaultScript calls;
    calls.fail(call, 3, EMFILE);

    EXPECT_THAT(makingFourFails(io::epoll()),
                AllOf(HasSubstr("EventLoopGroup half"), HasSubstr("making loop 3 of 4"),
                      HasSubstr(call), HasSubstr("Too many open files")));
    EXPECT_EQ(calls.count("pthread_create"), 0U);
    EXPECT_EQ(test::leaksBetween(before, Census::take()), std::vector<std::string>{});
  }
}

// C025
TEST(EventLoopGroupMake, KeepsTheCodeOfWhatFailed) {
  test::FaultScript calls;
  calls.fail("epoll_create1", 1, EMFILE);
  int code = 0;

  try {
    EventLoopGroup group(2);
  } catch (const Exception& e) {
    code = e.error().errnoValue();
  }

  EXPECT_EQ(code, EMFILE);
}

// C025 C228: those made before are ended properly, in their own way
TEST(EventLoopGroupMake, EndsTheLoopsMadeBeforeTheOneThatFails) {
  auto probe = EngineProbe::make();
  const IoFactory good = probe->factory();
  int made = 0;
  const IoFactory engine{good.type, [&]() -> Result<std::unique_ptr<IoHandler>> {
                           if (++made == 3) return Error::fromErrno(ENFILE, "third engine");
                           return good.make();
                         }};

  EXPECT_THAT(makingFourFails(engine), AllOf(HasSubstr("third engine"), HasSubstr("loop 3 of 4")));

  EXPECT_EQ(made, 3);
  EXPECT_EQ(probe->count("make"), 2U);
  EXPECT_EQ(probe->count("awaitWakeups"), 2U);  // descriptors closed
  EXPECT_EQ(probe->count("destroy"), 2U);
  EXPECT_EQ(probe->count("attach"), 0U);
}

// C025: the original is what the caller gets
TEST(EventLoopGroupMake, PassesOnWhatAStrategyFactoryThrows) {
  const Census before = Census::take();
  int made = 0;
  const auto options = LoopOptions().loops(4).strategy([&]() -> std::unique_ptr<SelectStrategy> {
    if (++made == 3) throw std::domain_error("no third strategy");
    return defaultSelectStrategy()();
  });

  EXPECT_EQ(textOf<std::domain_error>([&] { EventLoopGroup group(options); }), "no third strategy");
  EXPECT_EQ(test::leaksBetween(before, Census::take()), std::vector<std::string>{});
}

// C025 C120c
TEST(EventLoopGroupMake, RefusesFactoriesThatGiveNothing) {
  const Census before = Census::take();

  EXPECT_THAT(textOf<std::invalid_argument>([] {
                EventLoopGroup group(LoopOptions().loops(2).name("null").strategy(
                    []() -> std::unique_ptr<SelectStrategy> { return nullptr; }));
              }),
              AllOf(HasSubstr("mr-null-1"), HasSubstr("select strategy factory gave nothing")));
  EXPECT_THAT(textOf<std::invalid_argument>([] {
                EventLoopGroup group(LoopOptions().loops(2).chooser(
                    [](auto) -> std::unique_ptr<Chooser> { return nullptr; }));
              }),
              HasSubstr("chooser(): the factory gave nothing"));
  EXPECT_EQ(test::leaksBetween(before, Census::take()), std::vector<std::string>{});
}

// C025: by then a loop may have started
TEST(EventLoopGroupMake, EndsLoopsThatAChooserFactoryStartedBeforeItFailed) {
  const Census before = Census::take();
  int ran = 0;

  EXPECT_EQ(textOf<std::domain_error>([&] {
              EventLoopGroup group(LoopOptions().loops(2).chooser(
                  [&](std::span<EventExecutor* const> children) -> std::unique_ptr<Chooser> {
                    children[0]->submit([&] { ++ran; }).get();
                    throw std::domain_error("no chooser");
                  }));
            }),
            "no chooser");

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
}

TEST(EventLoopGroupMake, TheEnvironmentCanNameTheEngine) {
  ::setenv("MILLRACE_IO", "poll", 1);
  EventLoopGroup group(1);
  EventLoopGroup given(1, io::parking());
  ::setenv("MILLRACE_IO", "steam", 1);

  EXPECT_EQ(&group.next().ioType(), &io::pollType);
  EXPECT_EQ(&given.next().ioType(), &io::parkingType);
  EXPECT_THAT(textOf<std::invalid_argument>([] { EventLoopGroup wrong(1); }),
              HasSubstr("no engine is called \"steam\""));
  ::unsetenv("MILLRACE_IO");
}

}  // namespace
}  // namespace millrace
