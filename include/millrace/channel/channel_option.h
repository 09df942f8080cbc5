// SPDX-License-Identifier: Apache-2.0
// ChannelOption<T>: the typed name of a setting; the settings themselves are in options::.
//
//   channel.setOption(options::tcpNoDelay, true);
//   bootstrap.childOption(options::waterMarks, {16 * 1024, 32 * 1024});
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace millrace {

/// Below `low` a channel becomes writable again, above `high` it stops being so. In bytes.
struct WaterMarks {
  std::size_t low = 32 * 1024;
  std::size_t high = 64 * 1024;
  friend bool operator==(const WaterMarks&, const WaterMarks&) noexcept = default;
};

/// How large receive buffers are: they begin with `initial` and follow what comes.
struct ReceiveSizes {
  std::size_t min = 64;
  std::size_t initial = 2048;
  std::size_t max = 512 * 1024;
  friend bool operator==(const ReceiveSizes&, const ReceiveSizes&) noexcept = default;
};

/// Every type that an option can have.
using OptionValue = std::variant<bool, int, Duration, WaterMarks, ReceiveSizes, std::string>;

/// What options have in common. Identity is the address.
class OptionKey {
 public:
  /// How the kernel wants the value.
  enum class Form : std::uint8_t { none, flag, number, linger, seconds, millis, micros, text };

  constexpr OptionKey(const char* name, int level, int number, Form form) noexcept
      : name_(name), level_(level), number_(number), form_(form) {}
  OptionKey(const OptionKey&) = delete;
  OptionKey& operator=(const OptionKey&) = delete;

  std::string_view name() const noexcept { return name_; }
  /// True if it is an option of the socket, with these numbers of the kernel.
  bool isOfSocket() const noexcept { return form_ != Form::none; }
  int level() const noexcept { return level_; }
  int number() const noexcept { return number_; }
  Form form() const noexcept { return form_; }

 private:
  const char* name_;
  int level_;
  int number_;
  Form form_;
};

/// The name of an option whose value is a T.
template <class T>
class ChannelOption final : public OptionKey {
 public:
  using value_type = T;
  using OptionKey::OptionKey;
};

/// What a channel is set to apart from its socket. Shared by channels with equal settings.
struct ChannelSettings {
  WaterMarks waterMarks;
  ReceiveSizes receiveSizes;
  Duration connectTimeout = std::chrono::seconds(30);
  Duration lingerOnDrain = std::chrono::seconds(2);
  int maxMessagesPerRead = 16;
  std::size_t maxBytesPerRead = 1024 * 1024;
  int writeSpinCount = 16;
  bool allowHalfClosure = false;
  bool pauseReadsWhenUnwritable = true;
  std::size_t zeroCopyFrom = 0;
};

namespace options {

// --- Millrace's own ---
/// Input comes by itself; default true.
MILLRACE_API extern const ChannelOption<bool> autoRead;
/// When isWritable() changes; counts the memory that queued messages keep.
MILLRACE_API extern const ChannelOption<WaterMarks> waterMarks;
/// The sizes of receive buffers.
MILLRACE_API extern const ChannelOption<ReceiveSizes> receiveSizes;
/// How long connect() may take; 0: as long as the kernel tries. Default 30 s.
MILLRACE_API extern const ChannelOption<Duration> connectTimeout;
/// How long a lingering close waits for the peer; default 2 s.
MILLRACE_API extern const ChannelOption<Duration> lingerOnDrain;
/// Reads of one event, or connections accepted at once, with auto read; default 16.
MILLRACE_API extern const ChannelOption<int> maxMessagesPerRead;
/// Writes of one flush before others get their turn; default 16.
MILLRACE_API extern const ChannelOption<int> writeSpinCount;
/// The peer may end its stream while we go on writing; default false: that closes the channel.
MILLRACE_API extern const ChannelOption<bool> allowHalfClosure;
/// Nothing is read while isWritable() is false; default true.
MILLRACE_API extern const ChannelOption<bool> pauseReadsWhenUnwritable;
/// TCP on io_uring: so many bytes or more at once are sent from their own memory, without a copy by the
/// kernel, which pins it until the peer has acknowledged them. 0: never, the default. Others copy, and so do
/// writes that pause the reads, because they make the channel unwritable: raise the water marks above what
/// is written at once, or set pauseReadsWhenUnwritable to false.
MILLRACE_API extern const ChannelOption<int> zeroCopyFrom;
/// Datagrams: the longest that is read, 1 to 65536; longer ones are dropped (DatagramTruncated).
/// Default 2048; 65536 with udpGro.
MILLRACE_API extern const ChannelOption<int> datagramSize;
/// Unix streams: how many descriptors may come with a message (FdMessage), up to 253. Default 0:
/// those that a peer sends are closed by the kernel.
MILLRACE_API extern const ChannelOption<int> receiveDescriptors;

// --- the kernel's, for sockets ---
MILLRACE_API extern const ChannelOption<int> backlog;  ///< connections that wait to be accepted
MILLRACE_API extern const ChannelOption<bool> reuseAddress;
MILLRACE_API extern const ChannelOption<bool> reusePort;
MILLRACE_API extern const ChannelOption<bool> keepAlive;
MILLRACE_API extern const ChannelOption<bool> broadcast;
MILLRACE_API extern const ChannelOption<bool> dontRoute;
MILLRACE_API extern const ChannelOption<bool> timestamp;
MILLRACE_API extern const ChannelOption<int> sendBuffer;
MILLRACE_API extern const ChannelOption<int> receiveBuffer;
MILLRACE_API extern const ChannelOption<int> receiveLowWater;
MILLRACE_API extern const ChannelOption<int> priority;
MILLRACE_API extern const ChannelOption<int> mark;
MILLRACE_API extern const ChannelOption<int> busyPoll;
MILLRACE_API extern const ChannelOption<int> incomingCpu;
MILLRACE_API extern const ChannelOption<bool> zeroCopy;
MILLRACE_API extern const ChannelOption<std::string> bindToDevice;
/// SO_LINGER in seconds: what close(2) does with unsent bytes; negative: off, the default.
MILLRACE_API extern const ChannelOption<int> soLinger;
MILLRACE_API extern const ChannelOption<bool> tcpNoDelay;
MILLRACE_API extern const ChannelOption<bool> tcpCork;
MILLRACE_API extern const ChannelOption<bool> tcpQuickAck;
MILLRACE_API extern const ChannelOption<int> tcpMaxSegment;
MILLRACE_API extern const ChannelOption<int> tcpSynCount;
MILLRACE_API extern const ChannelOption<int> tcpNotSentLowWater;
MILLRACE_API extern const ChannelOption<Duration> tcpKeepIdle;
MILLRACE_API extern const ChannelOption<Duration> tcpKeepInterval;
MILLRACE_API extern const ChannelOption<int> tcpKeepCount;
MILLRACE_API extern const ChannelOption<Duration> tcpUserTimeout;
MILLRACE_API extern const ChannelOption<Duration> tcpDeferAccept;
MILLRACE_API extern const ChannelOption<Duration> tcpLinger2;
/// On a server: how many connections may wait with data in their first packet.
MILLRACE_API extern const ChannelOption<int> tcpFastOpen;
/// On a client: the first write goes with the first packet.
MILLRACE_API extern const ChannelOption<bool> tcpFastOpenConnect;
MILLRACE_API extern const ChannelOption<std::string> tcpCongestion;
MILLRACE_API extern const ChannelOption<int> ipTos;
MILLRACE_API extern const ChannelOption<int> ipTtl;
MILLRACE_API extern const ChannelOption<bool> ipTransparent;
MILLRACE_API extern const ChannelOption<bool> ipFreeBind;
MILLRACE_API extern const ChannelOption<bool> ipBindAddressNoPort;
MILLRACE_API extern const ChannelOption<bool> ipReceiveOriginalDestination;
MILLRACE_API extern const ChannelOption<int> ipMulticastTtl;
MILLRACE_API extern const ChannelOption<bool> ipMulticastLoop;
MILLRACE_API extern const ChannelOption<bool> ipMulticastAll;
MILLRACE_API extern const ChannelOption<bool> ipv6Only;
MILLRACE_API extern const ChannelOption<int> ipv6TrafficClass;
MILLRACE_API extern const ChannelOption<int> ipv6UnicastHops;
MILLRACE_API extern const ChannelOption<int> ipv6MulticastHops;
MILLRACE_API extern const ChannelOption<bool> ipv6MulticastLoop;
/// UDP: the kernel cuts a larger message into datagrams of this size, and takes several datagrams
/// of one size up to this as one, if they follow each other to one peer. 0: off, the default. At
/// most what the path carries. Fails with ENOPROTOOPT on kernels that cannot do it.
MILLRACE_API extern const ChannelOption<int> udpSegment;
/// UDP: the kernel hands datagrams of one sender over as one where it can; handlers see each as it
/// was sent. Off by default. Fails with ENOPROTOOPT on kernels that cannot do it.
MILLRACE_API extern const ChannelOption<bool> udpGro;

}  // namespace options

}  // namespace millrace
