// SPDX-License-Identifier: Apache-2.0
// The two ends of a connection of uring_soak, and what they may do to each other.
//
// Every byte says whose it is: a connection sends its own number again and again, and the server echoes
// it. Bytes of another connection, or an event behind the end, are counted as wrong.
#pragma once

#include <millrace/millrace.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>

namespace millrace::soak {

/// What went on, of all connections; any thread.
struct Totals {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> connected{0};
  std::atomic<std::uint64_t> refused{0};  ///< while the server was down, or cancelled
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> whole{0};    ///< everything came back
  std::atomic<std::uint64_t> cut{0};      ///< somebody ended it before
  std::atomic<std::uint64_t> bytes{0};    ///< that came back
  std::atomic<std::uint64_t> wrong{0};    ///< must stay 0
  std::atomic<std::int64_t> handlers{0};  ///< that live
};

/// Lives as long as anything of a connection does.
struct Ticket {
  explicit Ticket(Totals& all) : totals(all) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { ++totals.ended; }
  Totals& totals;
};

/// Sees that events come in order and none behind the end.
class Watched : public ChannelHandler {
 public:
  explicit Watched(Totals& totals) : totals_(totals) { ++totals_.handlers; }
  ~Watched() override { --totals_.handlers; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void handlerRemoved(Context&) override { stage_ = Stage::removed; }
  void channelActive(Context&) override { expect(Stage::fresh, Stage::active); }
  void channelInactive(Context&) override { expect(Stage::active, Stage::inactive); }
  void channelReadComplete(Context& ctx) override {
    mustBeActive();
    ctx.flush();
  }
  void exceptionCaught(Context& ctx, const Error&) override {
    if (stage_ >= Stage::inactive) wrong();
    ctx.close();
  }

 protected:
  enum class Stage { fresh, active, inactive, removed };
  void mustBeActive() {
    if (stage_ != Stage::active) wrong();
  }
  void wrong() { ++totals_.wrong; }
  void expect(Stage before, Stage after) {
    if (stage_ != before) wrong();
    stage_ = after;
  }
  Totals& totals_;

 private:
  Stage stage_ = Stage::fresh;
};

/// What a peer does before its time, picked by the connection's dice.
enum class Prank : std::uint8_t {
  none,
  close,
  reset,
  closeGracefully,
  pause,
  comeBack,
  shutdownOutput
};

inline Prank anyPrank(std::uint32_t dice) {
  switch (dice % 16) {
    case 0:
      return Prank::close;
    case 1:
      return Prank::reset;
    case 2:
      return Prank::closeGracefully;
    case 3:
      return Prank::pause;
    case 4:
      return Prank::comeBack;
    case 5:
      return Prank::shutdownOutput;
    default:
      return Prank::none;
  }
}

inline void play(Channel& channel, Prank prank) {
  const ChannelPtr self(&channel);
  switch (prank) {
    case Prank::none:
      return;
    case Prank::close:
      channel.close();
      return;
    case Prank::reset:
      channel.setOption(options::soLinger, 0);
      channel.close();
      return;
    case Prank::closeGracefully:
      channel.closeGracefully();
      return;
    case Prank::pause:
      channel.setAutoRead(false);
      channel.loop().execute([self] { self->setAutoRead(true); });
      return;
    case Prank::comeBack:
      channel.deregister().addListener([self](const Result<void>&) {
        if (self->isOpen()) registerChannel(self->loop(), self);
      });
      return;
    case Prank::shutdownOutput:
      channel.shutdownOutput();
      return;
  }
}

/// Echoes, and plays its prank at some message.
class ServerEnd final : public Watched {
 public:
  ServerEnd(Totals& totals, std::uint32_t dice) : Watched(totals), dice_(dice) {}

  void channelRead(Context& ctx, Message&& msg) override {
    mustBeActive();
    ctx.write(std::move(msg));
    if (++reads_ == 1 + dice_ / 16 % 3) play(ctx.channel(), anyPrank(dice_));
  }
  void userEventTriggered(Context& ctx, Message&& event) override {
    mustBeActive();
    if (event.is<InputShutdown>()) ctx.channel().shutdownOutput();
    event.reset();
  }

 private:
  const std::uint32_t dice_;
  std::uint32_t reads_ = 0;
};

/// Sends `size` bytes, waits for all of them, and closes; or plays its prank half way.
class ClientEnd final : public Watched {
 public:
  ClientEnd(std::shared_ptr<Ticket> ticket, std::uint64_t number, std::uint32_t dice)
      : Watched(ticket->totals),
        ticket_(std::move(ticket)),
        number_(number),
        dice_(dice),
        size_(sizeOf(dice)) {}

  void channelActive(Context& ctx) override {
    Watched::channelActive(ctx);
    ++totals_.connected;
    std::string bytes;
    bytes.reserve(size_);
    while (bytes.size() < size_) bytes.append(reinterpret_cast<const char*>(&number_), 8);
    bytes.resize(size_);
    ctx.writeAndFlush(ByteBuf::of(bytes));
    if (dice_ % 64 == 9) play(ctx.channel(), Prank::close);  // with the bytes in flight
  }
  void channelRead(Context& ctx, Message&& msg) override {
    mustBeActive();
    const ByteBuf bytes = msg.take<ByteBuf>();
    for (const char each : bytes.text()) {
      if (each != reinterpret_cast<const char*>(&number_)[came_++ % 8]) wrong();
    }
    totals_.bytes += bytes.readableBytes();
    if (came_ > size_) wrong();
    if (came_ == size_) {
      ctx.close();
    } else if (came_ > size_ / 2 && !played_) {
      played_ = true;
      play(ctx.channel(), anyPrank(dice_ >> 8));
    }
  }
  void channelInactive(Context& ctx) override {
    Watched::channelInactive(ctx);
    ++(came_ == size_ ? totals_.whole : totals_.cut);
  }

 private:
  static std::size_t sizeOf(std::uint32_t dice) {
    if (dice % 100 == 0) return 100'000 + dice % 50'000;  // bulk: leaves the ring
    if (dice % 10 == 0) return 5000 + dice % 5000;
    return 8 + dice % 500;
  }
  const std::shared_ptr<Ticket> ticket_;  // with whoever connects
  const std::uint64_t number_;
  const std::uint32_t dice_;
  const std::size_t size_;
  std::size_t came_ = 0;
  bool played_ = false;
};

}  // namespace millrace::soak
