// SPDX-License-Identifier: Apache-2.0
// What a client sends first: cut here or there it gets the same verdict and gives the same name, and both are
// those of a model that looks at one byte after the other and reads the message with bounds checks only.
//
//   input: mode, cuts, then bytes as they come        mode 1: the bytes are a ClientHello, which is put into records
#include "tls/client_hello.h"
#include "tls/host_names.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using millrace::ByteBuf;
using Reader = millrace::tls::ClientHelloReader;
using State = Reader::State;

struct Verdict {
  State state = State::more;
  std::optional<std::string> name;

  bool operator==(const Verdict& other) const { return state == other.state && name == other.name; }
};

// --- the model ---

std::size_t numberAt(const std::string& bytes, std::size_t at, std::size_t count) {
  std::size_t number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    number = number * 256 + static_cast<unsigned char>(bytes.at(at + i));
  }
  return number;
}

std::string partAt(const std::string& bytes, std::size_t at, std::size_t count) {
  if (at > bytes.size() || count > bytes.size() - at) throw std::out_of_range("a part");
  return bytes.substr(at, count);
}

std::optional<std::string> nameIn(const std::string& message) {
  try {
    std::size_t at = 4 + 2 + 32;
    at += 1 + numberAt(message, at, 1);
    at += 2 + numberAt(message, at, 2);
    at += 1 + numberAt(message, at, 1);
    const std::string extensions = partAt(message, at + 2, numberAt(message, at, 2));
    for (std::size_t next = 0; next < extensions.size();) {
      const std::size_t kind = numberAt(extensions, next, 2);
      const std::string content = partAt(extensions, next + 4, numberAt(extensions, next + 2, 2));
      next += 4 + content.size();
      if (kind != 0) continue;
      const std::size_t listed = numberAt(content, 0, 2);
      const std::size_t size = numberAt(content, 3, 2);
      if (content[2] != 0 || listed != size + 3 || content.size() != size + 5) return std::nullopt;
      return content.substr(5);
    }
  } catch (const std::out_of_range&) {  // cut off
  }
  return std::nullopt;
}

Verdict modelOf(std::string_view bytes, std::size_t limit) {
  std::string header;
  std::string message;
  std::size_t left = 0;
  bool isFirst = true;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (left == 0) {
      header += bytes[i];
      const bool isWrong = (header.size() == 1 && byte != 22) || (header.size() == 2 && byte != 3);
      if (isWrong) return {isFirst ? State::notTls : State::broken, {}};
      if (header.size() == 5) {
        left = numberAt(header, 3, 2);
        if (left == 0 || left > 16384) return {State::broken, {}};
        header.clear();
        isFirst = false;
      }
    } else {
      message += bytes[i];
      --left;
      if (message[0] != 1) return {State::broken, {}};
      if (message.size() >= 4) {
        const std::size_t whole = 4 + numberAt(message, 1, 3);
        if (whole > limit) return {State::tooLong, {}};
        if (message.size() == whole) return {State::whole, nameIn(message)};
      }
    }
    if (i + 1 == limit) return {State::tooLong, {}};
  }
  return {};
}

// --- the reader ---

/// `cuts` says how long the pieces are; 0: there is one.
Verdict verdictOf(std::string_view bytes, std::size_t limit, std::uint32_t cuts) {
  Reader reader(limit);
  Verdict verdict;
  std::size_t fed = 0;
  while (verdict.state == State::more && fed < bytes.size()) {
    cuts = cuts < 2 ? cuts : cuts * 1664525u + 1013904223u;
    const std::size_t piece = cuts == 0 ? bytes.size() : cuts == 1 ? 1 : 1 + (cuts >> 16) % 97;
    const std::string_view part = bytes.substr(fed, piece);
    fed += part.size();
    verdict.state = reader.feed(ByteBuf::of(part));
  }
  if (verdict.state == State::whole) verdict.name = reader.serverName();
  if (reader.takeBytes().text() != bytes.substr(0, fed)) std::abort();
  return verdict;
}

std::string inRecords(std::string_view hello, std::size_t record) {
  const std::size_t size = hello.size();
  std::string message{'\x01', static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                      static_cast<char>(size)};
  message += hello;
  std::string bytes;
  for (std::size_t at = 0; at < message.size(); at += record) {
    const std::string part = message.substr(at, record);
    bytes += {'\x16', '\x03', '\x01', static_cast<char>(part.size() >> 8),
              static_cast<char>(part.size())};
    bytes += part;
  }
  return bytes;
}

void compare(const Verdict& wanted, const Verdict& got, const char* how) {
  if (wanted == got) return;
  std::fprintf(stderr, "%s: state %d instead of %d, name '%s' instead of '%s'\n", how,
               static_cast<int>(got.state), static_cast<int>(wanted.state),
               got.name.value_or("none").c_str(), wanted.name.value_or("none").c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t limit = (data[0] & 2) != 0 ? 600 : 64 * 1024;
  const std::uint32_t cuts = data[1];
  std::string bytes(reinterpret_cast<const char*>(data + 2), size - 2);
  if ((data[0] & 1) != 0) bytes = inRecords(bytes, cuts == 0 ? 4096 : cuts);

  const Verdict wanted = modelOf(bytes, limit);
  compare(wanted, verdictOf(bytes, limit, 0), "whole");
  compare(wanted, verdictOf(bytes, limit, 1), "byte by byte");
  compare(wanted, verdictOf(bytes, limit, cuts + 2), "in pieces");

  if (!wanted.name) return 0;
  const std::optional<std::string> normal = millrace::tls::normalHostName(*wanted.name);
  if (normal && millrace::tls::normalHostName(*normal) != normal) std::abort();
  return 0;
}
