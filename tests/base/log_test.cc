// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"

#include <millrace/base/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::LogCapture;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(Log, RecordHasLevelLayerAndText) {
  LogCapture capture;

  log(LogLevel::warn, "loop", "rebuilt after ", 512, " empty waits");

  const auto records = capture.records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].level, LogLevel::warn);
  EXPECT_EQ(records[0].layer, "loop");
  EXPECT_EQ(records[0].thread, "");
  EXPECT_EQ(records[0].text, "rebuilt after 512 empty waits");
}

TEST(Log, PutsTextsAndNumbersTogether) {
  LogCapture capture;

  log(LogLevel::info, "x", std::string("a"), std::string_view("b"), "c", -5, 2.5, std::size_t{7});

  EXPECT_EQ(capture.records().at(0).text, "abc-52.57");
}

TEST(Log, NamesTheThreadThatNamedItself) {
  LogCapture capture;

  setLogThread("mr-1-1");
  log(LogLevel::info, "x", "one");
  setLogThread("");
  std::thread([] { log(LogLevel::info, "x", "two"); }).join();

  EXPECT_EQ(capture.records().at(0).thread, "mr-1-1");
  EXPECT_EQ(capture.records().at(1).thread, "");
}

TEST(Log, FilterLetsItsLevelAndHigherThrough) {
  LogCapture capture("warn");

  for (const LogLevel level :
       {LogLevel::trace, LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error}) {
    log(level, "x", logLevelName(level));
  }

  EXPECT_EQ(capture.records().size(), 2u);
  EXPECT_EQ(capture.count(LogLevel::warn), 1u);
  EXPECT_EQ(capture.count(LogLevel::error), 1u);
  EXPECT_TRUE(capture.contains("err"));
  EXPECT_FALSE(capture.contains("info"));
}

TEST(Log, FilterSetsLevelsOfLayers) {
  setLogFilter("warn,loop=debug,sys=off");

  EXPECT_TRUE(logEnabled(LogLevel::debug, "loop"));
  EXPECT_FALSE(logEnabled(LogLevel::trace, "loop"));
  EXPECT_FALSE(logEnabled(LogLevel::error, "sys"));
  EXPECT_FALSE(logEnabled(LogLevel::info, "other"));
  EXPECT_TRUE(logEnabled(LogLevel::warn, "other"));
  setLogFilter("info");
}

TEST(Log, FilterWithLayersOnlyLeavesTheRestAtInfo) {
  setLogFilter("loop=trace");

  EXPECT_TRUE(logEnabled(LogLevel::trace, "loop"));
  EXPECT_TRUE(logEnabled(LogLevel::info, "other"));
  EXPECT_FALSE(logEnabled(LogLevel::debug, "other"));
  setLogFilter("info");
}

TEST(Log, OffLetsNothingThrough) {
  setLogFilter("off");
  EXPECT_FALSE(logEnabled(LogLevel::error, "x"));
  EXPECT_FALSE(logEnabled(LogLevel::off, "x"));

  setLogFilter("");
  EXPECT_TRUE(logEnabled(LogLevel::info, "x"));
  EXPECT_FALSE(logEnabled(LogLevel::debug, "x"));
  EXPECT_FALSE(logEnabled(LogLevel::off, "x"));
}

TEST(Log, FilterThatMakesNoSenseIsRefusedAndChangesNothing) {
  setLogFilter("error");

  for (const char* text : {"loud", "warn,loop=loud", "info,,debug", "loop=", "WARN"}) {
    EXPECT_THROW(setLogFilter(text), std::invalid_argument) << text;
  }

  EXPECT_FALSE(logEnabled(LogLevel::warn, "loop"));
  setLogFilter("info");
  try {
    setLogFilter("loud");
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "log filter: \"loud\" is no level; use trace, debug, info, warn, error or off");
  }
}

TEST(Log, NothingIsFormattedThatNobodyWants) {
  LogCapture capture("error");
  struct Text {
    int* conversions;
    operator std::string_view() const {  // NOLINT: implicit, so that log() may take it
      ++*conversions;
      return "text";
    }
  };
  int conversions = 0;

  log(LogLevel::info, "x", Text{&conversions});
  EXPECT_EQ(conversions, 0);
  log(LogLevel::error, "x", Text{&conversions});
  EXPECT_EQ(conversions, 1);
}

TEST(Log, SinkThatThrowsIsForgiven) {
  LogCapture capture;
  const LogSink mine =
      setLogSink([](const LogRecord&) { throw std::runtime_error("the disk is full"); });

  EXPECT_NO_THROW(log(LogLevel::info, "x", "lost"));
  setLogSink(mine);
  log(LogLevel::info, "x", "kept");

  EXPECT_EQ(capture.records().size(), 1u);
}

TEST(Log, WhatASinkLogsItselfIsDropped) {
  LogCapture capture;
  int calls = 0;
  const LogSink mine = setLogSink([&calls](const LogRecord&) {
    ++calls;
    EXPECT_FALSE(logEnabled(LogLevel::error, "x"));
    log(LogLevel::error, "x", "again");
  });

  log(LogLevel::info, "x", "once");
  setLogSink(mine);

  EXPECT_EQ(calls, 1);
}

TEST(Log, SinkGetsOneRecordAtATime) {
  int inside = 0;
  int records = 0;
  setLogFilter("trace");
  setLogSink([&](const LogRecord&) {
    EXPECT_EQ(++inside, 1);
    ++records;
    --inside;
  });

  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 200; ++j) log(LogLevel::info, "x", j);
    });
  }
  for (std::thread& thread : threads) thread.join();
  setLogSink({});
  setLogFilter("info");

  EXPECT_EQ(records, 600);
}

TEST(Log, WritesOneLineToStandardErrorWithoutColourWhenItIsNoTerminal) {
  testing::internal::CaptureStderr();
  setLogThread("mr-1-1");
  log(LogLevel::warn, "loop", "slow");
  setLogThread("");
  log(LogLevel::error, "sys", "bad");
  const std::string out = testing::internal::GetCapturedStderr();

  EXPECT_THAT(out, MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9] "
                                "warn  \\[mr-1-1\\] loop: slow\n"
                                "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9] "
                                "error sys: bad\n"));
  EXPECT_THAT(out, Not(HasSubstr("\033")));
}

TEST(Log, LevelsHaveNames) {
  EXPECT_EQ(logLevelName(LogLevel::trace), "trace");
  EXPECT_EQ(logLevelName(LogLevel::debug), "debug");
  EXPECT_EQ(logLevelName(LogLevel::off), "off");
}

// The environment is read once per process, so each case is a process of its own.
TEST(LogDeathTest, EnvironmentSetsTheFilter) {
  const auto run = [](const char* value) {
    ::setenv("MILLRACE_LOG", value, 1);
    log(LogLevel::debug, "loop", "from loop");
    log(LogLevel::info, "other", "from other");
    std::exit(0);
  };

  EXPECT_EXIT(run("warn,loop=debug"), testing::ExitedWithCode(0),
              AllOf(HasSubstr("debug loop: from loop\n"), Not(HasSubstr("from other"))));
  EXPECT_EXIT(run("nonsense"), testing::ExitedWithCode(0),
              "millrace: MILLRACE_LOG ignored: .*\"nonsense\" is no level.*from other");
}

TEST(Log, WritesCharactersAndTruthValuesAsSuch) {
  test::LogCapture capture;
  log(LogLevel::info, "app", 'x', ' ', true, ' ', false, ' ', 7, ' ', 1.5);
  EXPECT_TRUE(capture.contains("x true false 7 1.5"));
}

}  // namespace
}  // namespace millrace
