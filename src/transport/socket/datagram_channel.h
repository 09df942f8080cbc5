// SPDX-License-Identifier: Apache-2.0
// DatagramChannel: a UDP or Unix datagram socket on a readiness engine. Loop thread only.
//
// Active once it is bound or connected. Datagrams come and go in batches (recvmmsg, sendmmsg). A
// batch that was received is handed on whole, even if reading is to stop meanwhile. What fails
// concerns one datagram: the channel stays open. datagram_channel.cc has its life and input,
// datagram_write.cc its output.
#pragma once

#include "transport/socket/socket_base.h"
#include "transport/socket/unix_path.h"

#include <millrace/base/atomic.h>
#include <millrace/channel/channel.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/socket_address.h>

#include <cstddef>
#include <cstdint>

struct mmsghdr;

namespace millrace {

class ByteBuf;
struct SegmentControl;

class DatagramChannel final : public Channel, private IoClient {
 public:
  DatagramChannel(EventLoop& loop, Fd fd, bool isUnix);

  const char* kind() const noexcept override { return isUnix_ ? "unix datagram" : "udp"; }
  SocketAddress localAddress() const override;
  SocketAddress remoteAddress() const override;
  int descriptor() const noexcept override { return socket_.fd(); }
  Result<void> applyOption(const OptionKey& key, const OptionValue& value) override;
  Result<OptionValue> lookUpOption(const OptionKey& key) const override;

 private:
  // --- Channel ---
  Result<void> doRegister() override;
  void doDeregister() noexcept override;
  Result<void> doBind(const SocketAddress& local) override;
  Result<bool> doConnect(const SocketAddress& remote, const SocketAddress& local) override;
  Result<void> doDisconnect() override;
  void doClose() noexcept override;
  void doBeginRead() override;
  void doStopRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool acceptsMessage(const Message& msg) const override;
  bool isActiveNow() const noexcept override { return bound_; }

  // --- IoClient ---
  void ready(std::uint32_t events) noexcept override;
  void lost(const Error& why) noexcept override;

  // --- input ---
  struct Received;
  std::size_t room() const noexcept;
  void readBurst();
  int receiveBatch(std::size_t most, std::size_t& taken, std::size_t& passed);
  std::size_t pass(Received& from);
  ByteBuf rightSized(ByteBuf&& bytes);
  void tellTruncated(const Received& from);
  void adaptBatch(std::size_t asked, std::size_t got) noexcept;
  void takeError();
  void inputFailed(int error);

  // --- output ---
  enum class Progress : std::uint8_t { sent, full, failed };
  struct Outgoing;
  Outgoing outgoing(OutboundBuffer& out, std::size_t i) const noexcept;
  void failUnsendable(OutboundBuffer& out);
  Progress writeBatch(OutboundBuffer& out);
  Progress writeSegments(OutboundBuffer& out);
  Progress sendPrepared(OutboundBuffer& out, mmsghdr* headers, const std::uint16_t* counts,
                        std::size_t count);
  std::size_t prepare(OutboundBuffer& out, mmsghdr* headers, std::uint16_t* counts,
                      SegmentControl* controls) const;
  std::size_t segmentsFrom(OutboundBuffer& out, std::size_t first, std::size_t most) const noexcept;
  Progress writeFailed(OutboundBuffer& out, int error, bool wasSegmented);
  void waitUntilWritable(bool toOthers);

  static constexpr std::size_t kDefaultSize = 2048;
  static constexpr std::uint8_t kFewest = 2;  // one datagram, and none behind it: no second call
  static constexpr std::uint8_t kMostAtOnce = 16;

  SocketHandle socket_;
  SocketAddress boundTo_;  // as it was asked for
  BoundPath path_;
  std::uint32_t size_ = kDefaultSize;
  std::uint16_t segment_ = 0;        // options::udpSegment
  std::uint8_t batch_ = kFewest;     // as many are expected to wait
  Atomic<bool> isConnected_{false};  // read by any thread
  const bool isUnix_;
  bool bound_ = false;
  bool readable_ = false;
  bool gro_ = false;
  bool joins_ = false;     // several datagrams go as one
  bool reported_ = false;  // the failure of an earlier datagram was just told
};

}  // namespace millrace
