// SPDX-License-Identifier: Apache-2.0
// StreamChannel: a connection over TCP or a Unix stream socket, on a readiness engine, or on one with
// a ring (stream_ring.cc).
//
// With edges (epoll) the descriptor is registered once, and the channel remembers what it was told:
// readable until a short read, writable until the kernel is full. With levels (poll) it says what it
// waits for. Loop thread only.
#pragma once

#include "channel/loop_channels.h"
#include "transport/socket/socket_base.h"

#include <millrace/buffer/block.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/receive_predictor.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/socket_address.h>

#include <memory>
#include <vector>

namespace millrace {

class FdReceiver;
class FileRegion;
class RingIo;
enum class SendMode : std::uint8_t;

// IoClient comes first: ready() is called for every event and finds its object at once.
class StreamChannel final : private IoClient, public Channel {
 public:
  enum class Stage : std::uint8_t { fresh, connected };

  /// `peer`: whom it is connected with, if it is.
  StreamChannel(EventLoop& loop, Fd fd, bool isUnix, Stage stage, const SocketAddress& peer);
  ~StreamChannel() override;

  const char* kind() const noexcept override { return isUnix_ ? "unix stream" : "tcp"; }
  SocketAddress localAddress() const override;
  SocketAddress remoteAddress() const override {
    return mayReadAddresses() ? remote_ : SocketAddress();
  }
  int descriptor() const noexcept override { return socket_.fd(); }
  Result<void> applyOption(const OptionKey& key, const OptionValue& value) override;
  Result<OptionValue> lookUpOption(const OptionKey& key) const override;
  /// A ring receives and sends for it.
  bool isOnRing() const noexcept { return way_ == Way::ring; }

 private:
  template <class Transport, bool (Transport::*Write)(ByteBuf&) noexcept>
  friend class Channel::EventScope;
  friend class FdReceiver;

  // --- Channel ---
  Result<void> doRegister() override;
  void doDeregister() noexcept override;
  Result<void> doBind(const SocketAddress& local) override;
  Result<bool> doConnect(const SocketAddress& remote, const SocketAddress& local) override;
  void doClose() noexcept override;
  Result<void> doShutdownOutput() override;
  void doBeginRead() override;
  void doStopRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool doFinishWrite() override;
  std::size_t doCountUnsent() const noexcept override;
  bool acceptsMessage(const Message& msg) const override;
  bool isActiveNow() const noexcept override { return connected_; }
  bool canLinger() const noexcept override { return true; }
  void doLinger() override;

  // --- IoClient ---
  void ready(std::uint32_t events) noexcept override;
  void completed(const RingCompletion& completion) noexcept override;
  void lost(const Error& why) noexcept override;
  void shuttingDown() noexcept override;

  Result<void> enter();
  void finishConnect();
  internal::Block* receive(std::size_t room, std::ptrdiff_t& got) noexcept;
  void readUsual();
  void readEvents(std::uint32_t events);
  void readBurst();
  void readBurstFrom(internal::Block* block, std::ptrdiff_t got, std::size_t reads);
  bool mayReadMore(std::size_t reads, std::size_t total) const noexcept;
  void inputFailed(std::ptrdiff_t got);
  void discardInput();
  void discardEnded(std::ptrdiff_t got);
  void broken(std::uint32_t events);
  std::ptrdiff_t writeOnce(OutboundBuffer& out);
  bool writeWhole(ByteBuf& bytes) noexcept;
  int writeAll(OutboundBuffer& out);
  int writeFailed(int error);
  void noteWritten(std::ptrdiff_t wrote) noexcept {
    local().count(LoopChannels::bytesWritten, static_cast<std::uint64_t>(wrote));
  }
  std::ptrdiff_t writeFile(OutboundBuffer& out);
  std::ptrdiff_t copyFile(const FileRegion& region, std::size_t size);
  void waitUntilWritable();
  void writeLater();
  // Descriptors over Unix sockets: unix_fds.cc.
  bool isUnixSocket() const;
  Result<void> receiveDescriptors(int most);
  void readyWithFds(std::uint32_t events) noexcept;
  void readFdsBurst();
  std::ptrdiff_t writeFds(OutboundBuffer& out);
  std::ptrdiff_t refuseFds(OutboundBuffer& out, const Error& why);
  // On a ring: stream_ring.cc.
  bool mayUseRing() const noexcept;
  bool goToRing();
  void leaveRing();
  void goToReadiness();
  Result<void> enterReadiness();
  void considerRing(std::size_t total);
  void ringReceived(const RingCompletion& completion);
  void takeReceived(ByteBuf&& bytes, bool moreNow);
  void endRingBurst();
  void ringEnded(int result);
  bool hasEarly() const noexcept { return early_ != nullptr; }
  bool passEarly();
  SendMode sendMode(std::size_t bytes) const noexcept;
  bool sendByRing(ByteBuf& bytes) noexcept;
  int writeByRing(OutboundBuffer& out);
  void ringSent(const RingCompletion& completion);
  Error ioError(int error, const char* operation) const;

  /// Bursts in a row that one block of the ring would have had room for: small messages, again.
  static constexpr std::uint8_t kSmallBursts = 16;
  /// Who moves the bytes.
  enum class Way : std::uint8_t { readiness, ring, leaving };

  SocketHandle socket_;
  RingIo* ring_ = nullptr;  // the loop's, if it has one
  std::uint64_t ringId_ = 0;
  std::unique_ptr<std::vector<ByteBuf>> early_;  // what the ring brought when nobody wanted it
  SocketAddress remote_;
  ReceivePredictor predictor_;
  std::unique_ptr<FdReceiver> fdReceiver_;  // few have one
  std::ptrdiff_t unexpected_ = 0;           // what writeWhole() got instead
  const bool isUnix_;
  bool connected_;
  bool readable_ = false;  // something may be there to read
  // What makes reading unusual.
  static constexpr std::uint8_t kThorough = 1;  // a short read does not mean that there is no more
  static constexpr std::uint8_t kOnRing = 2;    // bursts are counted: the ring may do better
  std::uint8_t odd_ = 0;
  Way way_ = Way::readiness;
  bool sending_ = false;          // by the ring
  bool inRingBurst_ = false;      // channelReadComplete() follows with the ring's next completion
  bool awaited_ = false;          // deregistered, and kept alive until the ring is done
  std::uint8_t fullReads_ = 0;    // in a row, by the ring
  std::uint8_t smallBursts_ = 0;  // in a row, by readiness
  bool parked_ = false;           // out of the engine, which would report a hang-up again and again
};

}  // namespace millrace
