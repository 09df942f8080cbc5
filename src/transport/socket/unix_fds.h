// SPDX-License-Identifier: Apache-2.0
// FdReceiver: stands in for a StreamChannel at the engine where descriptors may come with the
// bytes, so that the others need not ask for each message whether they may.
#pragma once

#include <millrace/loop/readiness_io.h>

#include <cstddef>
#include <cstdint>

namespace millrace {

class StreamChannel;

/// Owned by its channel, from the first time that options::receiveDescriptors is set. Loop thread.
class FdReceiver final : public IoClient {
 public:
  explicit FdReceiver(StreamChannel& channel) noexcept : channel_(channel) {}

  void ready(std::uint32_t events) noexcept override;
  void lost(const Error& why) noexcept override;

  std::size_t most = 0;  ///< of one message; 0: none

 private:
  StreamChannel& channel_;
};

}  // namespace millrace
