// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"

#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>
#include <millrace/handler/logging_handler.h>
#include <millrace/transport/embedded_channel.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace millrace {
namespace {

using test::LogCapture;

auto logging(const std::shared_ptr<LoggingHandler>& handler) {
  return [handler](Channel& channel) { channel.pipeline().addLast(handler); };
}

/// What the handler said, without the channel's name, one word per event at least.
std::vector<std::string> saidBy(const LogCapture& log) {
  std::vector<std::string> texts;
  for (const LogCapture::Record& record : log.records()) {
    if (record.layer != "handler") continue;
    texts.push_back(record.text.substr(record.text.find("] ") + 2));
  }
  return texts;
}

TEST(LoggingHandler, WritesEveryEventInOrderAndPassesItOn) {
  const LogCapture log;
  {
    EmbeddedChannel channel(
        logging(std::make_shared<LoggingHandler>(LogLevel::info, LoggingHandler::Bytes::summary)));
    channel.writeInbound(ByteBuf::of("hello"));
    channel.writeOutbound(ByteBuf::of("answer"));
    EXPECT_EQ(channel.inboundText(), "hello");
    EXPECT_EQ(channel.outboundText(), "answer");
    channel.close();
  }

  EXPECT_EQ(saidBy(log), (std::vector<std::string>{"registered", "active", "read: 5 bytes",
                                                   "read complete", "write: 6 bytes", "flush",
                                                   "close", "inactive", "unregistered"}));
}

TEST(LoggingHandler, ShowsBytesAsAHexDump) {
  const LogCapture log;
  EmbeddedChannel channel(logging(std::make_shared<LoggingHandler>(LogLevel::info)));

  channel.writeInbound(ByteBuf::of("hello"));

  EXPECT_TRUE(log.contains("68 65 6c 6c 6f"));
  EXPECT_TRUE(log.contains("hello"));
}

TEST(LoggingHandler, NamesTheTypeOfOtherMessagesAndErrors) {
  const LogCapture log;
  EmbeddedChannel channel(logging(std::make_shared<LoggingHandler>(LogLevel::info)));

  channel.writeInbound(42);
  channel.breakWith(Error(Errc::timedOut, "test"));

  EXPECT_TRUE(log.contains("read: int"));
  EXPECT_TRUE(log.contains("exception: test"));
  EXPECT_TRUE(static_cast<bool>(channel.takeException()));
}

TEST(LoggingHandler, SaysNothingBelowTheLevelThatIsLogged) {
  const LogCapture log("info");
  EmbeddedChannel channel(logging(std::make_shared<LoggingHandler>(LogLevel::debug)));

  channel.writeInbound(ByteBuf::of("hello"));

  EXPECT_TRUE(saidBy(log).empty());
  EXPECT_EQ(channel.inboundText(), "hello");
}

TEST(LoggingHandler, MayBeShared) {
  const LogCapture log;
  const auto handler = std::make_shared<LoggingHandler>(LogLevel::info);
  EmbeddedChannel first(logging(handler));
  EmbeddedChannel second(logging(handler));

  EXPECT_EQ(saidBy(log),
            (std::vector<std::string>{"registered", "active", "registered", "active"}));
}

}  // namespace
}  // namespace millrace
