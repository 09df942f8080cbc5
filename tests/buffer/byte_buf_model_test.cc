// SPDX-License-Identifier: Apache-2.0
// Random operations on several ByteBufs that share bytes, beside plain vectors.
#include <millrace/buffer/buffer_pool.h>
#include <millrace/buffer/byte_buf.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

/// A ByteBuf and what must be readable in it.
struct Pair {
  ByteBuf buf;
  std::string model;
};

class Game {
 public:
  explicit Game(const std::vector<std::uint32_t>& moves) {
    for (const std::uint32_t move : moves) play(move);
  }

 private:
  void play(std::uint32_t move) {
    const std::uint32_t what = move % 12;
    const std::uint32_t number = move / 12;
    if (pairs_.empty() || what == 0) {
      pairs_.push_back(
          {number % 2 == 0 ? ByteBuf(number % 64) : pool_.allocate(number % 4096), {}});
    }
    Pair& pair = pairs_[number % pairs_.size()];
    const std::size_t some = pair.model.empty() ? 0 : number % (pair.model.size() + 1);
    switch (what) {
      case 1: {
        const std::string text(number % 300, static_cast<char>('a' + number % 26));
        pair.buf.writeBytes(text);
        pair.model += text;
        break;
      }
      case 2:
        pair.buf.writeInt(number);
        for (int shift = 24; shift >= 0; shift -= 8) {
          pair.model += static_cast<char>(number >> shift);
        }
        break;
      case 3:
        pair.buf.skipBytes(some);
        pair.model.erase(0, some);
        break;
      case 4:
        RC_ASSERT(pair.buf.readString(some) == pair.model.substr(0, some));
        pair.model.erase(0, some);
        break;
      case 5: {
        Pair made{pair.buf.readSlice(some), pair.model.substr(0, some)};
        pair.model.erase(0, some);
        pairs_.push_back(std::move(made));
        break;
      }
      case 6:
        pairs_.push_back({pair.buf.share(), pair.model});
        break;
      case 7:
        if (!pair.model.empty()) {
          const std::size_t at = number % pair.model.size();
          pair.buf.setByte(pair.buf.readerIndex() + at, number);
          pair.model[at] = static_cast<char>(number);
        }
        break;
      case 8:
        pair.buf.discardReadBytes();
        break;
      case 9:
        pair.buf.ensureWritable(number % 1000);
        break;
      case 10:
        std::swap(pair, pairs_.back());
        pairs_.pop_back();
        break;
      default: {
        const auto wanted = static_cast<std::uint8_t>('a' + number % 26);
        const std::size_t found = pair.model.find(static_cast<char>(wanted));
        RC_ASSERT(pair.buf.indexOf(wanted) == (found == std::string::npos ? ByteBuf::npos : found));
        break;
      }
    }
    for (const Pair& each : pairs_) {
      RC_ASSERT(each.buf.text() == each.model);
      RC_ASSERT(each.buf.writerIndex() <= each.buf.capacity());
      RC_ASSERT(each.model.empty() || each.buf.pinnedBytes() >= each.model.size());
    }
  }

  BufferPool pool_;
  std::vector<Pair> pairs_;
};

TEST(ByteBufModel, BehavesLikeStringsThatShareNothing) {
  const std::int64_t before = internal::liveHeapBlocks();
  EXPECT_TRUE(rc::check([](const std::vector<std::uint32_t>& moves) { Game game(moves); }));
  EXPECT_EQ(internal::liveHeapBlocks(), before);
}

}  // namespace
}  // namespace millrace
