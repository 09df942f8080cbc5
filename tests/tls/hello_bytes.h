// SPDX-License-Identifier: Apache-2.0
// ClientHellos written by hand, as strange as a test wants them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// `number` in so many bytes, the highest first.
inline std::string bigEndian(std::size_t number, std::size_t bytes) {
  std::string text;
  while (bytes-- != 0) text += static_cast<char>(number >> (8 * bytes) & 0xff);
  return text;
}
/// With its length in front.
inline std::string counted(std::string_view content, std::size_t lengthBytes) {
  return bigEndian(content.size(), lengthBytes) + std::string(content);
}
inline std::string extension(std::size_t kind, std::string_view content) {
  return bigEndian(kind, 2) + counted(content, 2);
}

/// One entry of a server_name extension.
inline std::string nameEntry(std::string_view name, std::size_t type = 0) {
  return bigEndian(type, 1) + counted(name, 2);
}
/// The whole extension.
inline std::string serverNames(std::string_view entries) {
  return extension(0, counted(entries, 2));
}

/// A handshake message whose ciphers and versions nobody speaks.
inline std::string helloMessage(std::string_view extensions) {
  const std::string body = "\x03\x03" + std::string(32, 'r') + counted("", 1) +
                           counted("\x13\x01", 2) + counted(std::string_view("\0", 1), 1) +
                           counted(extensions, 2);
  return "\x01" + counted(body, 3);
}
inline std::string helloFor(std::string_view name) {
  return helloMessage(serverNames(nameEntry(name)));
}

/// `message` in records of `most` bytes.
inline std::string inRecords(std::string_view message, std::size_t most = 16384) {
  std::string bytes;
  for (std::size_t at = 0; at < message.size(); at += most) {
    bytes += "\x16\x03\x01" + counted(message.substr(at, most), 2);
  }
  return bytes;
}

}  // namespace millrace::test
