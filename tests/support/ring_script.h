// SPDX-License-Identifier: Apache-2.0
// RingScript: what becomes of the operations of io_uring, as a test wants it. Operations are changed on
// their way to the kernel, so that engine and kernel never disagree on what is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <linux/io_uring.h>

namespace millrace::test {

/// In use from construction to destruction, for all threads, and for rings that are opened meanwhile:
/// make it before the loops. One at a time, and no FaultScript beside it. Any thread.
class RingScript {
 public:
  RingScript();
  RingScript(const RingScript&) = delete;
  RingScript& operator=(const RingScript&) = delete;
  ~RingScript();

  /// The next `times` operations of this code (IORING_OP_...) end with -`error` at once: the kernel has
  /// never heard of them.
  RingScript& fail(std::uint8_t code, int error, unsigned times = 1);
  /// Operations of this code that move bytes move at most `most`; those of several parts one part.
  RingScript& shorten(std::uint8_t code, std::size_t most);
  /// Operations of this code that repeat by themselves end with the first that they bring.
  RingScript& onlyOnce(std::uint8_t code);
  /// The next `times` cancels of an operation come late: the kernel hears of each with the call after its own.
  RingScript& delayCancels(unsigned times);
  /// The next one of this code that moves bytes says that it moved `result`.
  RingScript& lie(std::uint8_t code, int result);

  /// Operations of this code that were begun so far, failed ones included.
  std::uint64_t count(std::uint8_t code) const;
  /// Notifications that the kernel is done with the memory of a send.
  std::uint64_t notifications() const;
  /// Operations that were failed, shortened or lied about.
  std::uint64_t faults() const;
};

}  // namespace millrace::test
