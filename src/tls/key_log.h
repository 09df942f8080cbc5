// SPDX-License-Identifier: Apache-2.0
// KeyLog: a file of secrets for those who look at captured packets. Off unless it has a path.
//
// Threads: any; each line is one write to the end of the file.
#pragma once

#include <millrace/base/result.h>
#include <millrace/sys/fd.h>

#include <string>
#include <string_view>

namespace millrace::tls {

class KeyLog {
 public:
  /// Only the owner may read what is made. An empty path: nothing happens.
  Result<void> open(const std::string& path);
  bool isOpen() const noexcept { return file_.get() >= 0; }
  void write(std::string_view line) noexcept;

 private:
  Fd file_;
};

}  // namespace millrace::tls
