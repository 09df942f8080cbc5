// SPDX-License-Identifier: Apache-2.0
// Loads that return an older value, as C++ allows them where the machine of the store buffers does
// not: see Options::staleLoads. A load may skip a write if nothing obliges it to know it:
//  - the write, or a newer one, does not happen before the load;
//  - neither the thread nor anyone it has synchronised with has read or written anything as new
//  (coherence);
//  - not both are sequentially consistent: their total order is the order of execution.
// Read-modify-writes and system calls always see the newest value. Where coherence cannot be
// decided from the clocks kept, the newer value is taken: some behaviour may be missed, none is
// invented.
#include "explorer_engine.h"

namespace millrace::explorer {

using namespace detail;

namespace {
constexpr unsigned kMostCandidates = 8;
}  // namespace

/// Notes the current value of an object as its newest write.
void Engine::addWrite(uint32_t id, unsigned writer, uint32_t epoch, bool seqCst) {
  if (options_.staleLoads == 0) return;
  Object& object = objects_[id];
  const auto index = static_cast<uint32_t>(writes_.size());
  writes_.push_back(
      {object.value, object.lastWrite, epoch, static_cast<uint8_t>(writer), seqCst, object.sync});
  object.lastWrite = index;
  if (writer != kMain) sawLatest(writer, id);
}

void Engine::sawLatest(unsigned thread, uint32_t id) {
  if (options_.staleLoads == 0 || thread == kMain) return;
  Object& object = objects_[id];
  object.floor[thread] = object.lastWrite;
  if (object.firstRead[thread] == 0) object.firstRead[thread] = threads_[thread].hb.at[thread];
}

/// The oldest write that coherence leaves to a thread. If a read of another thread happens before,
/// all reads of that thread count.
uint32_t Engine::floorOf(unsigned thread, const Object& object) const {
  uint32_t floor = object.floor[thread];
  for (unsigned t = 0; t < threadCount_; ++t) {
    const bool known = object.firstRead[t] != 0 && threads_[thread].hb.at[t] >= object.firstRead[t];
    if (known) floor = std::max(floor, object.floor[t]);
  }
  return floor;
}

/// Decides which write a load reads: the newest or, as often as the options say, an older one.
uint32_t Engine::pickWrite(unsigned thread, uint32_t id, MemoryOrder order) {
  Object& object = objects_[id];
  const ThreadState& state = threads_[thread];
  const uint32_t floor = floorOf(thread, object);
  std::array<uint32_t, kMostCandidates> candidates;
  unsigned count = 0;
  for (uint32_t index = object.lastWrite;; index = writes_[index].before) {
    const Write& write = writes_[index];
    candidates[count++] = index;
    const bool known =
        index <= floor || index < state.fenceFloor || state.hb.at[write.writer] >= write.epoch;
    const bool ordered = write.seqCst && order == std::memory_order_seq_cst;
    if (known || ordered || count == kMostCandidates || stale_ >= options_.staleLoads) break;
  }
  const uint32_t index = candidates[decide(count)];
  object.floor[thread] = std::max(index, floor);
  if (object.firstRead[thread] == 0) object.firstRead[thread] = state.hb.at[thread];
  if (index != object.lastWrite) ++stale_;
  return index;
}

}  // namespace millrace::explorer
