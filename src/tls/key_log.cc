// SPDX-License-Identifier: Apache-2.0
#include "tls/key_log.h"

#include <millrace/base/log.h>

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace millrace::tls {

Result<void> KeyLog::open(const std::string& path) {
  if (path.empty()) return {};
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Error::fromErrno(errno, "open", "the key log " + path);
  file_ = Fd(fd);
  log(LogLevel::warn, "tls", "secrets are written to ", path,
      ": whoever reads it can read the connections");
  return {};
}

void KeyLog::write(std::string_view line) noexcept {
  const std::string whole = std::string(line) + "\n";
  // It is for debugging: a full disk must not break connections.
  static_cast<void>(::write(file_.get(), whole.data(), whole.size()) < 0);
}

}  // namespace millrace::tls
