// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/result.h>
#include <millrace/buffer/buffer_pool.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_option.h>

#include <cerrno>
#include <linux/udp.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif

namespace millrace {

namespace options {

using Form = OptionKey::Form;

const ChannelOption<bool> autoRead("autoRead", 0, 0, Form::none);
const ChannelOption<WaterMarks> waterMarks("waterMarks", 0, 0, Form::none);
const ChannelOption<ReceiveSizes> receiveSizes("receiveSizes", 0, 0, Form::none);
const ChannelOption<Duration> connectTimeout("connectTimeout", 0, 0, Form::none);
const ChannelOption<Duration> lingerOnDrain("lingerOnDrain", 0, 0, Form::none);
const ChannelOption<int> maxMessagesPerRead("maxMessagesPerRead", 0, 0, Form::none);
const ChannelOption<int> writeSpinCount("writeSpinCount", 0, 0, Form::none);
const ChannelOption<bool> allowHalfClosure("allowHalfClosure", 0, 0, Form::none);
const ChannelOption<bool> pauseReadsWhenUnwritable("pauseReadsWhenUnwritable", 0, 0, Form::none);
const ChannelOption<int> zeroCopyFrom("zeroCopyFrom", 0, 0, Form::none);
const ChannelOption<int> datagramSize("datagramSize", 0, 0, Form::none);
const ChannelOption<int> receiveDescriptors("receiveDescriptors", 0, 0, Form::none);
const ChannelOption<int> backlog("backlog", 0, 0, Form::none);

const ChannelOption<bool> reuseAddress("reuseAddress", SOL_SOCKET, SO_REUSEADDR, Form::flag);
const ChannelOption<bool> reusePort("reusePort", SOL_SOCKET, SO_REUSEPORT, Form::flag);
const ChannelOption<bool> keepAlive("keepAlive", SOL_SOCKET, SO_KEEPALIVE, Form::flag);
const ChannelOption<bool> broadcast("broadcast", SOL_SOCKET, SO_BROADCAST, Form::flag);
const ChannelOption<bool> dontRoute("dontRoute", SOL_SOCKET, SO_DONTROUTE, Form::flag);
const ChannelOption<bool> timestamp("timestamp", SOL_SOCKET, SO_TIMESTAMP, Form::flag);
const ChannelOption<int> sendBuffer("sendBuffer", SOL_SOCKET, SO_SNDBUF, Form::number);
const ChannelOption<int> receiveBuffer("receiveBuffer", SOL_SOCKET, SO_RCVBUF, Form::number);
const ChannelOption<int> receiveLowWater("receiveLowWater", SOL_SOCKET, SO_RCVLOWAT, Form::number);
const ChannelOption<int> priority("priority", SOL_SOCKET, SO_PRIORITY, Form::number);
const ChannelOption<int> mark("mark", SOL_SOCKET, SO_MARK, Form::number);
const ChannelOption<int> busyPoll("busyPoll", SOL_SOCKET, SO_BUSY_POLL, Form::number);
const ChannelOption<int> incomingCpu("incomingCpu", SOL_SOCKET, SO_INCOMING_CPU, Form::number);
const ChannelOption<bool> zeroCopy("zeroCopy", SOL_SOCKET, SO_ZEROCOPY, Form::flag);
const ChannelOption<std::string> bindToDevice("bindToDevice", SOL_SOCKET, SO_BINDTODEVICE,
                                              Form::text);
const ChannelOption<int> soLinger("soLinger", SOL_SOCKET, SO_LINGER, Form::linger);
const ChannelOption<bool> tcpNoDelay("tcpNoDelay", IPPROTO_TCP, TCP_NODELAY, Form::flag);
const ChannelOption<bool> tcpCork("tcpCork", IPPROTO_TCP, TCP_CORK, Form::flag);
const ChannelOption<bool> tcpQuickAck("tcpQuickAck", IPPROTO_TCP, TCP_QUICKACK, Form::flag);
const ChannelOption<int> tcpMaxSegment("tcpMaxSegment", IPPROTO_TCP, TCP_MAXSEG, Form::number);
const ChannelOption<int> tcpSynCount("tcpSynCount", IPPROTO_TCP, TCP_SYNCNT, Form::number);
const ChannelOption<int> tcpNotSentLowWater("tcpNotSentLowWater", IPPROTO_TCP, TCP_NOTSENT_LOWAT,
                                            Form::number);
const ChannelOption<Duration> tcpKeepIdle("tcpKeepIdle", IPPROTO_TCP, TCP_KEEPIDLE, Form::seconds);
const ChannelOption<Duration> tcpKeepInterval("tcpKeepInterval", IPPROTO_TCP, TCP_KEEPINTVL,
                                              Form::seconds);
const ChannelOption<int> tcpKeepCount("tcpKeepCount", IPPROTO_TCP, TCP_KEEPCNT, Form::number);
const ChannelOption<Duration> tcpUserTimeout("tcpUserTimeout", IPPROTO_TCP, TCP_USER_TIMEOUT,
                                             Form::millis);
const ChannelOption<Duration> tcpDeferAccept("tcpDeferAccept", IPPROTO_TCP, TCP_DEFER_ACCEPT,
                                             Form::seconds);
const ChannelOption<Duration> tcpLinger2("tcpLinger2", IPPROTO_TCP, TCP_LINGER2, Form::seconds);
const ChannelOption<int> tcpFastOpen("tcpFastOpen", IPPROTO_TCP, TCP_FASTOPEN, Form::number);
const ChannelOption<bool> tcpFastOpenConnect("tcpFastOpenConnect", IPPROTO_TCP,
                                             TCP_FASTOPEN_CONNECT, Form::flag);
const ChannelOption<std::string> tcpCongestion("tcpCongestion", IPPROTO_TCP, TCP_CONGESTION,
                                               Form::text);
const ChannelOption<int> ipTos("ipTos", IPPROTO_IP, IP_TOS, Form::number);
const ChannelOption<int> ipTtl("ipTtl", IPPROTO_IP, IP_TTL, Form::number);
const ChannelOption<bool> ipTransparent("ipTransparent", IPPROTO_IP, IP_TRANSPARENT, Form::flag);
const ChannelOption<bool> ipFreeBind("ipFreeBind", IPPROTO_IP, IP_FREEBIND, Form::flag);
const ChannelOption<bool> ipBindAddressNoPort("ipBindAddressNoPort", IPPROTO_IP,
                                              IP_BIND_ADDRESS_NO_PORT, Form::flag);
const ChannelOption<bool> ipReceiveOriginalDestination("ipReceiveOriginalDestination", IPPROTO_IP,
                                                       IP_RECVORIGDSTADDR, Form::flag);
const ChannelOption<int> ipMulticastTtl("ipMulticastTtl", IPPROTO_IP, IP_MULTICAST_TTL,
                                        Form::number);
const ChannelOption<bool> ipMulticastLoop("ipMulticastLoop", IPPROTO_IP, IP_MULTICAST_LOOP,
                                          Form::flag);
const ChannelOption<bool> ipMulticastAll("ipMulticastAll", IPPROTO_IP, IP_MULTICAST_ALL,
                                         Form::flag);
const ChannelOption<bool> ipv6Only("ipv6Only", IPPROTO_IPV6, IPV6_V6ONLY, Form::flag);
const ChannelOption<int> ipv6TrafficClass("ipv6TrafficClass", IPPROTO_IPV6, IPV6_TCLASS,
                                          Form::number);
const ChannelOption<int> ipv6UnicastHops("ipv6UnicastHops", IPPROTO_IPV6, IPV6_UNICAST_HOPS,
                                         Form::number);
const ChannelOption<int> ipv6MulticastHops("ipv6MulticastHops", IPPROTO_IPV6, IPV6_MULTICAST_HOPS,
                                           Form::number);
const ChannelOption<bool> ipv6MulticastLoop("ipv6MulticastLoop", IPPROTO_IPV6, IPV6_MULTICAST_LOOP,
                                            Form::flag);
const ChannelOption<int> udpSegment("udpSegment", IPPROTO_UDP, UDP_SEGMENT, Form::number);
const ChannelOption<bool> udpGro("udpGro", IPPROTO_UDP, UDP_GRO, Form::flag);

}  // namespace options

namespace {

Error wrongValue(const OptionKey& key, const std::string& why) {
  return Error::fromErrno(EINVAL, "setOption " + std::string(key.name()), why);
}

/// Changes `settings` as asked. False if the option is none of ours.
Result<bool> change(ChannelSettings& settings, const OptionKey& key, const OptionValue& value) {
  if (&key == &options::waterMarks) {
    const auto marks = std::get<WaterMarks>(value);
    if (marks.low > marks.high) return wrongValue(key, "the low mark is above the high one");
    settings.waterMarks = marks;
  } else if (&key == &options::receiveSizes) {
    const auto sizes = std::get<ReceiveSizes>(value);
    if (sizes.min == 0 || sizes.min > sizes.initial || sizes.initial > sizes.max) {
      return wrongValue(key, "it must be 0 < min <= initial <= max");
    }
    if (sizes.max > BufferPool::kMaxPooled || sizes.max < 64) {
      return wrongValue(key, "max must be 64 to 524288");
    }
    settings.receiveSizes = sizes;
  } else if (&key == &options::connectTimeout) {
    settings.connectTimeout = std::get<Duration>(value);
  } else if (&key == &options::lingerOnDrain) {
    settings.lingerOnDrain = std::get<Duration>(value);
  } else if (&key == &options::maxMessagesPerRead) {
    if (std::get<int>(value) < 1) return wrongValue(key, "at least 1 is needed");
    settings.maxMessagesPerRead = std::get<int>(value);
  } else if (&key == &options::writeSpinCount) {
    if (std::get<int>(value) < 1) return wrongValue(key, "at least 1 is needed");
    settings.writeSpinCount = std::get<int>(value);
  } else if (&key == &options::allowHalfClosure) {
    settings.allowHalfClosure = std::get<bool>(value);
  } else if (&key == &options::pauseReadsWhenUnwritable) {
    settings.pauseReadsWhenUnwritable = std::get<bool>(value);
  } else if (&key == &options::zeroCopyFrom) {
    if (std::get<int>(value) < 0) return wrongValue(key, "at least 0 is needed");
    settings.zeroCopyFrom = static_cast<std::size_t>(std::get<int>(value));
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<void> Channel::applyOption(const OptionKey& key, const OptionValue& value) {
  if (&key == &options::autoRead) {
    const bool on = std::get<bool>(value);
    if (on == isAutoRead()) return {};
    if (on) {
      set(kAutoRead);
      if (isRegistered()) enterRead();
    } else {
      unset(kAutoRead);
      unmark(kReadWanted);
      if (isRegistered() && isOpen()) doStopRead();
    }
    return {};
  }
  ChannelSettings changed = *settings_;
  const Result<bool> done = change(changed, key, value);
  if (!done) return done.error();
  if (!*done) {
    return Error(Errc::notSupported, "setOption " + std::string(key.name()), "on " + describe());
  }
  replaceSettings(changed);
  if (local_ != nullptr && isOpen()) {
    updateWritability();
    updatePause();
  }
  return {};
}

Result<OptionValue> Channel::lookUpOption(const OptionKey& key) const {
  if (&key == &options::autoRead) return OptionValue(isAutoRead());
  if (&key == &options::waterMarks) return OptionValue(settings_->waterMarks);
  if (&key == &options::receiveSizes) return OptionValue(settings_->receiveSizes);
  if (&key == &options::connectTimeout) return OptionValue(settings_->connectTimeout);
  if (&key == &options::lingerOnDrain) return OptionValue(settings_->lingerOnDrain);
  if (&key == &options::maxMessagesPerRead) return OptionValue(settings_->maxMessagesPerRead);
  if (&key == &options::writeSpinCount) return OptionValue(settings_->writeSpinCount);
  if (&key == &options::allowHalfClosure) return OptionValue(settings_->allowHalfClosure);
  if (&key == &options::pauseReadsWhenUnwritable) {
    return OptionValue(settings_->pauseReadsWhenUnwritable);
  }
  if (&key == &options::zeroCopyFrom) {
    return OptionValue(static_cast<int>(settings_->zeroCopyFrom));
  }
  return Error(Errc::notSupported, "option " + std::string(key.name()), "on " + describe());
}

}  // namespace millrace
