// SPDX-License-Identifier: Apache-2.0
// The bits of readiness that epoll and poll share, and those that epoll adds.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr std::uint32_t kReadable = 0x001;      ///< EPOLLIN, POLLIN
inline constexpr std::uint32_t kUrgent = 0x002;        ///< EPOLLPRI, POLLPRI
inline constexpr std::uint32_t kWritable = 0x004;      ///< EPOLLOUT, POLLOUT
inline constexpr std::uint32_t kFailed = 0x008;        ///< EPOLLERR, POLLERR; always reported
inline constexpr std::uint32_t kHangup = 0x010;        ///< EPOLLHUP, POLLHUP; always reported
inline constexpr std::uint32_t kPeerClosed = 0x2000;   ///< EPOLLRDHUP, POLLRDHUP: no more input
inline constexpr std::uint32_t kNotOpen = 0x020;       ///< POLLNVAL; poll only
inline constexpr std::uint32_t kExclusive = 1u << 28;  ///< EPOLLEXCLUSIVE; epoll only
inline constexpr std::uint32_t kOneShot = 1u << 30;    ///< EPOLLONESHOT; epoll only
inline constexpr std::uint32_t kEdge = 1u << 31;       ///< EPOLLET; epoll only

}  // namespace millrace
