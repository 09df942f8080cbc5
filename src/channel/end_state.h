// SPDX-License-Identifier: Apache-2.0
// The future of an end: made when somebody asks for it first, on any thread, and completed by whoever comes
// second, he or the one who ends. A bit of a state word says that the end has come.
//
// Who asks puts the future in its place and then looks at the bit; who ends sets the bit and then looks
// for the future: one of the two sees the other. tests/interleave explores this source.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/future.h>

#include <atomic>
#include <cstdint>

namespace millrace::internal {

/// The future, which `place` counts; completed if the end has come. Any thread.
inline ResultState<void>& endState(Atomic<ResultState<void>*>& place,
                                   const Atomic<std::uint32_t>& state, std::uint32_t ended,
                                   Executor& executor) {
  ResultState<void>* there = place.load(std::memory_order_seq_cst);
  if (there == nullptr) {
    Ref<ResultState<void>> made = makeRef<ResultState<void>>(executor);
    made->markUncancellable();  // it is everybody's
    if (place.compare_exchange_strong(there, made.get(), std::memory_order_seq_cst)) {
      there = made.release();
    }
  }
  if ((state.load(std::memory_order_seq_cst) & ended) != 0) there->complete(Result<void>());
  return *there;
}

/// The end has come, and everything that belongs to it is done.
inline void tellEnd(const Atomic<ResultState<void>*>& place, Atomic<std::uint32_t>& state,
                    std::uint32_t ended) {
  state.fetch_or(ended, std::memory_order_seq_cst);
  if (ResultState<void>* there = place.load(std::memory_order_seq_cst)) {
    there->complete(Result<void>());
  }
}

}  // namespace millrace::internal
