// SPDX-License-Identifier: Apache-2.0
// ClientHelloReader: looks at what a client sends first, before OpenSSL sees any of it.
//
//   record: 22 3 x length | handshake: 1 length(3) | ClientHello ...          one message, in any number of records
//
// It waits until the message is whole, so that a client that never finishes it costs its own bytes and nothing
// else: no session, no buffer of the size that was announced. Then it says which name the client asks for.
// What is wrong inside of a whole message is OpenSSL's to refuse; it never sees anything else.
//
// Bytes are looked at once, however they are cut.
#pragma once

#include <millrace/buffer/byte_buf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace millrace::tls {

class ClientHelloReader {
 public:
  enum class State {
    more,     ///< it is not whole yet
    whole,    ///< serverName() is known, bytes() holds all that came
    notTls,   ///< this is no TLS record with a handshake
    tooLong,  ///< more than the limit, or announced to be
    broken    ///< it is TLS, but no ClientHello, or cut into records as nobody may
  };

  /// `limit`: of bytes, record headers included.
  explicit ClientHelloReader(std::size_t limit) noexcept : limit_(limit) {}

  /// Takes what came. Not to be called again once the state is another than `more`.
  State feed(ByteBuf&& bytes);

  State state() const noexcept { return state_; }
  /// Everything that was fed, for OpenSSL.
  ByteBuf takeBytes() noexcept { return std::move(bytes_); }
  std::size_t size() const noexcept { return bytes_.readableBytes(); }
  /// Of the server_name extension, as it stands there, if there is exactly one of type host_name.
  /// REQUIRES: state() == whole
  std::optional<std::string> serverName() const;

 private:
  static constexpr std::size_t kRecordHeader = 5;
  static constexpr std::size_t kMessageHeader = 4;
  static constexpr std::size_t kLongestRecord = 16384;

  State look();
  std::span<const std::byte> unseen() const noexcept;
  State readHeader();
  State readFragment();
  std::string message() const;

  const std::size_t limit_;
  ByteBuf bytes_;
  State state_ = State::more;
  std::size_t looked_ = 0;        // bytes that were looked at
  std::size_t fragmentLeft_ = 0;  // of the current record
  std::size_t messageSeen_ = 0;   // bytes of the message so far, its header included
  std::uint32_t header_ = 0;      // of the message, as far as it came
};

}  // namespace millrace::tls
