// SPDX-License-Identifier: Apache-2.0
// ChannelMetrics: what the channels of a loop or a group have done so far. Always on; any thread.
#pragma once

#include <millrace/base/export.h>

#include <cstdint>

namespace millrace {

class EventLoop;
class EventLoopGroup;

/// A snapshot of one loop, or the sum of several.
struct ChannelMetrics {
  std::uint64_t registered = 0;          ///< channels that came, so far
  std::uint64_t closed = 0;              ///< of those, how many have closed
  std::uint64_t bytesRead = 0;           ///< bytes that came
  std::uint64_t bytesWritten = 0;        ///< bytes that the kernel took
  std::uint64_t droppedMessages = 0;     ///< messages that no handler took
  std::uint64_t pausedReads = 0;         ///< times reading stopped because the peer does not read
  std::uint64_t copies = 0;              ///< messages copied to free the memory they kept
  std::uint64_t failedWrites = 0;        ///< failed messages whose writer gave no promise
  std::uint64_t acceptPauses = 0;        ///< times accepting stopped for want of descriptors
  std::uint64_t truncatedDatagrams = 0;  ///< dropped because they were longer than they may be

  /// Adds the figures of another loop.
  MILLRACE_API ChannelMetrics& operator+=(const ChannelMetrics& other) noexcept;
};

MILLRACE_API ChannelMetrics channelMetrics(const EventLoop& loop) noexcept;
MILLRACE_API ChannelMetrics channelMetrics(const EventLoopGroup& group) noexcept;

}  // namespace millrace
