// SPDX-License-Identifier: Apache-2.0
// Looking at something from any thread that its owner may close at any moment, without a lock on the
// owner's way: two bits of a state word of the owner's.
//
// Who looks sets `pinned` and then looks at `open`; who closes takes `open` away and then waits until
// `pinned` is gone. Both are one atomic word, so one of the two sees the other. tests/interleave
// explores this source.
#pragma once

#include <millrace/base/atomic.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace millrace::internal {

/// Calls `look` while the owner cannot close; gives an empty value if it is closed. One thread at a
/// time; the others, and the owner, spin meanwhile: it must be short and must not throw.
template <class F>
auto lookWhileOpen(Atomic<std::uint32_t>& state, std::uint32_t open, std::uint32_t pinned,
                   F&& look) noexcept {
  using R = decltype(look());
  while ((state.fetch_or(pinned, std::memory_order_seq_cst) & pinned) != 0) cpuRelax();
  R result = (state.load(std::memory_order_seq_cst) & open) != 0 ? look() : R();
  state.fetch_and(~pinned, std::memory_order_seq_cst);
  return result;
}

/// The owner has taken its open bit away: when this returns, nobody looks any more, or will.
inline void awaitLookers(const Atomic<std::uint32_t>& state, std::uint32_t pinned) noexcept {
  while ((state.load(std::memory_order_seq_cst) & pinned) != 0) cpuRelax();
}

}  // namespace millrace::internal
