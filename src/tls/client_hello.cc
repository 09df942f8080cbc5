// SPDX-License-Identifier: Apache-2.0
#include "tls/client_hello.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace millrace::tls {

namespace {

constexpr std::uint8_t kHandshakeRecord = 22;
constexpr std::uint8_t kClientHello = 1;
constexpr unsigned kServerName = 0;
constexpr unsigned kHostName = 0;

/// Reads numbers and parts from the front; once something was missing, everything is empty.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) noexcept : rest_(bytes) {}

  unsigned number(std::size_t bytes) {
    const std::string_view part = take(bytes);
    unsigned value = 0;
    for (const char c : part) value = value << 8 | static_cast<std::uint8_t>(c);
    return value;
  }
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) {
      good_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view part = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return part;
  }
  /// A part with its length in front.
  std::string_view vector(std::size_t lengthBytes) { return take(number(lengthBytes)); }
  bool empty() const noexcept { return rest_.empty(); }
  bool good() const noexcept { return good_; }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::optional<std::string> hostNameOf(std::string_view extension) {
  Cursor list(extension);
  Cursor names(list.vector(2));
  if (!list.good() || !list.empty()) return std::nullopt;
  const unsigned kind = names.number(1);
  const std::string_view name = names.vector(2);
  if (!names.good() || !names.empty() || kind != kHostName) return std::nullopt;
  return std::string(name);
}

}  // namespace

ClientHelloReader::State ClientHelloReader::feed(ByteBuf&& bytes) {
  if (!bytes_) {
    bytes_ = std::move(bytes);
  } else {
    bytes_.writeBytes(bytes.data());
  }
  state_ = look();
  if (state_ == State::more) {
    if (bytes_.readableBytes() >= limit_) state_ = State::tooLong;
    bytes_.compact();  // it may wait for long
  }
  return state_;
}

ClientHelloReader::State ClientHelloReader::look() {
  State state = State::more;
  while (state == State::more) {
    const std::size_t before = looked_;
    state = fragmentLeft_ == 0 ? readHeader() : readFragment();
    if (state == State::more && looked_ == before) break;  // bytes are missing
  }
  return state;
}

// What lies behind the limit is not looked at: it would come later if it were cut otherwise.
std::span<const std::byte> ClientHelloReader::unseen() const noexcept {
  return bytes_.data().first(std::min(bytes_.readableBytes(), limit_)).subspan(looked_);
}

ClientHelloReader::State ClientHelloReader::readHeader() {
  const auto data = unseen();
  // A wrong beginning is told by the first byte.
  if (!data.empty() && data[0] != std::byte{kHandshakeRecord}) {
    return looked_ == 0 ? State::notTls : State::broken;
  }
  if (data.size() > 1 && data[1] != std::byte{3}) {
    return looked_ == 0 ? State::notTls : State::broken;
  }
  if (data.size() < kRecordHeader) return State::more;
  const std::size_t length =
      std::to_integer<std::size_t>(data[3]) << 8 | std::to_integer<std::size_t>(data[4]);
  if (length == 0 || length > kLongestRecord) return State::broken;
  looked_ += kRecordHeader;
  fragmentLeft_ = length;
  return State::more;
}

ClientHelloReader::State ClientHelloReader::readFragment() {
  const auto data = unseen();
  std::size_t used = 0;
  while (used < data.size() && used < fragmentLeft_ && messageSeen_ < kMessageHeader) {
    header_ = header_ << 8 | std::to_integer<std::uint32_t>(data[used++]);
    if (++messageSeen_ == 1 && header_ != kClientHello) return State::broken;
  }
  if (messageSeen_ >= kMessageHeader) {
    const std::size_t length = kMessageHeader + (header_ & 0xffffff);
    if (length > limit_) return State::tooLong;
    const std::size_t more =
        std::min({data.size() - used, fragmentLeft_ - used, length - messageSeen_});
    used += more;
    messageSeen_ += more;
    if (messageSeen_ == length) return State::whole;
  }
  looked_ += used;
  fragmentLeft_ -= used;
  return State::more;
}

// What the records hold, put together. The framing was checked before.
std::string ClientHelloReader::message() const {
  std::string whole;
  Cursor records({reinterpret_cast<const char*>(bytes_.data().data()), bytes_.readableBytes()});
  while (whole.size() < messageSeen_) {
    records.take(3);
    const std::size_t length = records.number(2);
    whole += records.take(std::min(length, messageSeen_ - whole.size()));
  }
  return whole;
}

std::optional<std::string> ClientHelloReader::serverName() const {
  const std::string whole = message();
  Cursor hello(std::string_view(whole).substr(kMessageHeader));
  hello.take(2 + 32);  // version, random
  hello.vector(1);     // session
  hello.vector(2);     // ciphers
  hello.vector(1);     // compression
  Cursor extensions(hello.vector(2));
  if (!hello.good()) return std::nullopt;
  while (!extensions.empty()) {
    const unsigned kind = extensions.number(2);
    const std::string_view content = extensions.vector(2);
    if (!extensions.good()) return std::nullopt;
    if (kind == kServerName) return hostNameOf(content);
  }
  return std::nullopt;
}

}  // namespace millrace::tls
