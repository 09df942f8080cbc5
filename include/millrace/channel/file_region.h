// SPDX-License-Identifier: Apache-2.0
// FileRegion: a part of a file as a message, which goes to the socket without a copy.
//
//   ctx.write(FileRegion(openFile("page.html"), 0, size));
#pragma once

#include <millrace/base/export.h>
#include <millrace/sys/fd.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace millrace {

/// A value; copies share the descriptor, which closes with the last of them. Stream sockets send it
/// by sendfile(2). A file that is shorter than the region when its bytes are sent fails the write
/// and closes the channel: the peer would wait for the rest.
class FileRegion {
 public:
  FileRegion(std::shared_ptr<const Fd> file, std::uint64_t offset, std::uint64_t count) noexcept
      : file_(std::move(file)), offset_(offset), count_(count) {}
  FileRegion(Fd file, std::uint64_t offset, std::uint64_t count)
      : FileRegion(std::make_shared<const Fd>(std::move(file)), offset, count) {}

  int fd() const noexcept { return file_->get(); }
  /// Where the next byte to be sent is.
  std::uint64_t offset() const noexcept { return offset_; }
  /// How many are left.
  std::uint64_t count() const noexcept { return count_; }
  /// `sent` bytes have gone.
  void advance(std::uint64_t sent) noexcept {
    offset_ += sent;
    count_ -= sent;
  }

 private:
  std::shared_ptr<const Fd> file_;  // shared by the copies of this region
  std::uint64_t offset_;
  std::uint64_t count_;
};

}  // namespace millrace
