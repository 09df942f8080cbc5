// SPDX-License-Identifier: Apache-2.0
// TCP streams on io_uring that change their way at random: every byte arrives, in order, both ways.
#include "support/sanitized.h"
#include "transport/stream_ring_fixture.h"

#include <millrace/channel/file_region.h>

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>

namespace millrace {
namespace {

using test::pattern;
using test::recording;
using test::same;
using test::succeeds;

class StreamRingRandom : public test::StreamRingTest {
 protected:
  using Random = std::mt19937;

  /// Mostly small, sometimes more than a block of the ring, seldom bulk.
  static std::size_t anySize(Random& random) {
    switch (random() % 10) {
      case 0:
        return 4000 + random() % 200;
      case 1:
        return random() % 100'000;
      default:
        return random() % 300;
    }
  }
  static std::shared_ptr<const Fd> fileWith(const std::string& content) {
    char name[] = "/tmp/millrace-ring-XXXXXX";
    Fd made(::mkostemp(name, O_CLOEXEC));
    ::unlink(name);
    EXPECT_EQ(::write(made.get(), content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    return std::make_shared<const Fd>(std::move(made));
  }

  /// Writes a piece of `bytes` from `at` on, in one of the ways that there are.
  void writeSome(Channel& channel, const std::string& bytes, std::size_t& at, Random& random) {
    const std::size_t size = std::min(anySize(random), bytes.size() - at);
    const std::string_view part = std::string_view(bytes).substr(at, size);
    at += size;
    switch (random() % 6) {
      case 0:
        channel.write(ByteBuf::of(part.substr(0, size / 2)));
        channel.write(ByteBuf::of(""));
        channel.writeAndFlush(ByteBuf::of(part.substr(size / 2)));
        break;
      case 1:
        channel.writeAndFlush(FileRegion(file_, at - size, size));
        break;
      case 2:
        channel.write(ByteBuf::of(part));
        channel.flushNow();
        break;
      default:
        channel.writeAndFlush(ByteBuf::of(part));
    }
  }

  /// What a program may do to its channel at any time.
  void disturb(const ChannelPtr& channel, Random& random) {
    switch (random() % 8) {
      case 0:
        channel->setAutoRead(false);
        break;
      case 1:
        channel->setAutoRead(true);
        break;
      case 2:
        EXPECT_TRUE(succeeds(channel->deregister()));
        if (random() % 2 == 0) settle();
        EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));
        break;
      case 3:
        channel->read();
        break;
      default:
        settle();
    }
  }

  std::shared_ptr<const Fd> file_;
};

// F71: auto read, water marks, registrations, files, half closure, slow peers
TEST_P(StreamRingRandom, KeepsEveryByteInOrder) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (unsigned round = 0; round < (test::kSanitized ? 6U : 15U); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const test::LogPtr log = std::make_shared<test::EventLog>();
    const std::string in = pattern(300'000, round + 1);
    const std::string out = pattern(1'000'000, round + 100);
    file_ = fileWith(out);
    const bool isNarrow = random() % 2 == 0;
    const bool pauses = random() % 2 == 0;
    const int inPlaceFrom = !isNarrow && random() % 2 == 0 ? 200 : 0;
    Link both = link(
        recording(log),
        [&](Channel& ch) {
          if (isNarrow) narrow(ch);
          EXPECT_TRUE(ch.applyOption(options::allowHalfClosure, OptionValue(true)).ok());
          EXPECT_TRUE(ch.applyOption(options::pauseReadsWhenUnwritable, OptionValue(pauses)).ok());
          EXPECT_TRUE(ch.applyOption(options::zeroCopyFrom, OptionValue(inPlaceFrom)).ok());
        },
        isNarrow ? 4096 : 0);
    const ChannelPtr channel = both.channel;

    std::thread sender([&, random = Random(random())]() mutable {
      for (std::size_t at = 0; at < in.size();) {
        const std::size_t size = std::min(anySize(random), in.size() - at);
        both.peer.send(std::string_view(in).substr(at, size));
        at += size;
        if (random() % 4 == 0) std::this_thread::yield();
      }
      both.peer.shutdownWrite();
    });
    std::string got;
    std::thread receiver([&, random = Random(random())]() mutable {
      while (got.size() < out.size()) {
        const std::size_t size = std::min(1 + anySize(random), out.size() - got.size());
        const std::string part = both.peer.receive(size);
        if (part.empty()) break;
        got += part;
      }
    });
    for (std::size_t at = 0; at < out.size();) {
      inLoop([&, ch = channel] { writeSome(*ch, out, at, random); });
      if (random() % 3 == 0) disturb(channel, random);
    }
    channel->setAutoRead(true);
    channel->flush();
    if (random() % 2 == 0) {
      EXPECT_TRUE(succeeds(channel->shutdownOutput()));
    }
    receiver.join();
    EXPECT_TRUE(log->awaitBytes(in.size()));
    sender.join();

    EXPECT_TRUE(same(got, out));
    EXPECT_TRUE(same(log->bytes(), in));
    EXPECT_EQ(log->count("exception"), 0U);
    channel->close();
    EXPECT_TRUE(log->await("removed"));
    if (HasFailure()) break;
  }
  EXPECT_TRUE(test::eventually([&] { return usedBlocks() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRingRandom, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
