// SPDX-License-Identifier: Apache-2.0
// Files over stream sockets.
#include "channel/loop_channels.h"
#include "transport/socket/stream_channel.h"

#include <millrace/channel/file_region.h>
#include <millrace/sys/signal.h>
#include <millrace/sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace millrace {

namespace {

/// Of one call; others want to write, too.
constexpr std::uint64_t kChunk = 1024 * 1024;

}  // namespace

std::ptrdiff_t StreamChannel::writeFile(OutboundBuffer& out) {
  auto* region = out.flushed().as<FileRegion>();
  if (region->count() == 0) {
    out.removeFront();
    return 0;
  }
  if (Result<void> set = socket_.neverWait(); !set) return -set.error().errnoValue();
  auto offset = static_cast<std::int64_t>(region->offset());
  const auto size = static_cast<std::size_t>(std::min(region->count(), kChunk));
  std::ptrdiff_t sent = 0;
  {
    const SigpipeGuard quiet;  // the loop may run on a thread of the user's
    sent = sendFile(socket_.fd(), region->fd(), offset, size);
  }
  if (sent == -EINVAL || sent == -ENOSYS) sent = copyFile(*region, size);
  if (sent < 0) return sent;
  if (sent == 0) return -EIO;  // the file ended before the region did
  local().count(LoopChannels::bytesWritten, static_cast<std::uint64_t>(sent));
  region->advance(static_cast<std::uint64_t>(sent));
  if (region->count() == 0) out.removeFront();
  return sent;
}

// For files that cannot be mapped, such as those of /proc.
std::ptrdiff_t StreamChannel::copyFile(const FileRegion& region, std::size_t size) {
  ByteBuf bytes = pool().allocate(std::min<std::size_t>(size, 64 * 1024));
  const std::size_t room = std::min(size, bytes.writableBytes());
  const std::ptrdiff_t got = preadBytes(region.fd(), bytes.writable().data(), room,
                                        static_cast<std::int64_t>(region.offset()));
  if (got <= 0) return got;
  return sendSocket(socket_.fd(), bytes.writable().data(), static_cast<std::size_t>(got),
                    socket_.flags());
}

}  // namespace millrace
