// SPDX-License-Identifier: Apache-2.0
// The objects of an execution: found by address, checked for lifetime and for races.
#include "explorer_engine.h"

namespace millrace::explorer {

using namespace detail;

namespace {

/// Plain data may begin at the address of an Atomic inside it.
uintptr_t keyOf(const void* object, ObjectKind kind) {
  return (reinterpret_cast<uintptr_t>(object) << 1) | (kind == ObjectKind::kPlain ? 1 : 0);
}

}  // namespace

/// The place of `key` in the table of this execution; the caller fills a new one.
uint32_t* Engine::slot(uintptr_t key) {
  if (slotsUsed_ * 2 >= slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    slotsUsed_ = 0;
    for (const Slot& entry : old) {
      if (entry.execution == execution_) *slot(entry.key) = entry.object;
    }
  }
  size_t at = (key * 0x9E3779B97F4A7C15ULL) >> 20;
  for (;; ++at) {
    Slot& entry = slots_[at & (slots_.size() - 1)];
    if (entry.execution != execution_) {
      entry = {key, execution_, UINT32_MAX};
      ++slotsUsed_;
    }
    if (entry.key == key) return &entry.object;
  }
}

uint32_t Engine::add(uintptr_t key, ObjectKind kind, uint64_t value) {
  const auto id = static_cast<uint32_t>(objects_.size());
  Object& object = objects_.emplace_back();
  object.kind = kind;
  object.value = value;
  object.writer = kMain;
  *slot(key) = id;
  if (kind == ObjectKind::kAtomic) addWrite(id, kMain, 0, false);
  return id;
}

/// The object at an address, dead or alive; one that was made before the execution is taken over
/// with the value in its cell. The memory of any other is not touched.
uint32_t Engine::find(const void* object, ObjectKind kind, Cell cell) {
  const uintptr_t key = keyOf(object, kind);
  const uint32_t id = *slot(key);
  return id != UINT32_MAX ? id : add(key, kind, cell.at != nullptr ? cell.get(cell.at) : 0);
}

void Engine::created(const void* object, ObjectKind kind, uint64_t value, Site site) {
  Object& added = objects_[add(keyOf(object, kind), kind, value)];
  added.writer = static_cast<uint8_t>(current_);
  added.writeEpoch = threads_[current_].hb.at[current_];
  added.accessed.at[current_] = added.writeEpoch;
  added.writeSite = added.sites[current_] = site;
  if (kind == ObjectKind::kAtomic && options_.staleLoads != 0) {
    writes_[added.lastWrite].writer = added.writer;
    writes_[added.lastWrite].epoch = added.writeEpoch;
  }
}

void Engine::destroyed(const void* object, ObjectKind kind, Site site) {
  const uint32_t id = find(object, kind, Cell{});
  Object& gone = objects_[id];
  if (gone.dead)
    fail(Failure::kUseAfterDestroy,
         threadName(current_) + " destroys " + nameOf(id) + " a second time");
  trace(current_, OpKind::kDestroy, id, 0, 0, std::memory_order_relaxed, ValueType::kUnsigned, true,
        site);
  const Clock& mine = threads_[current_].hb;
  for (unsigned t = 0; t <= kMain; ++t) {
    if (gone.accessed.at[t] > mine.at[t]) {
      fail(Failure::kRace, raceText(gone, "destruction", current_, site, t, false, gone.sites[t]));
    }
  }
  if (kind == ObjectKind::kMutex && gone.value != 0) {
    fail(Failure::kMisuse, nameOf(id) + " is destroyed while " +
                               threadName(static_cast<unsigned>(gone.value - 1)) + " holds it");
  }
  for (const uint32_t t : waiters_) {
    if (threads_[t].pending.object == id) {
      fail(Failure::kUseAfterDestroy,
           nameOf(id) + " is destroyed while " + threadName(t) + " sleeps on it");
    }
  }
  ThreadState& state = threads_[current_];
  for (size_t i = state.head; i < state.buffer.size(); ++i) {
    if (state.buffer[i].object == id) state.buffer[i].dropped = true;
  }
  gone.dead = true;
}

void Engine::name(const void* object, const char* text) {
  const uint32_t* id = slot(keyOf(object, ObjectKind::kAtomic));
  if (*id != UINT32_MAX) objects_[*id].name = text;
  id = slot(keyOf(object, ObjectKind::kPlain));
  if (*id != UINT32_MAX) objects_[*id].name = text;
}

/// Checks that the object is alive and that its construction is known to the thread.
bool Engine::enter(unsigned thread, uint32_t id, Site site) {
  Object& object = objects_[id];
  if (object.dead) {
    report(Failure::kUseAfterDestroy, threadName(thread) + " uses " + nameOf(id) +
                                          " after its destruction, at " + siteText(site));
    return false;
  }
  const Clock& mine = threads_[thread].hb;
  if (mine.at[object.writer] < object.writeEpoch) {
    report(Failure::kRace,
           raceText(object, "access", thread, site, object.writer, true, object.writeSite));
    return false;
  }
  object.accessed.at[thread] = mine.at[thread];
  object.sites[thread] = site;
  return true;
}

void Engine::plainAccess(const void* object, bool write, Site site) {
  const uint32_t id = find(object, ObjectKind::kPlain, Cell{});
  trace(current_, write ? OpKind::kPlainWrite : OpKind::kPlainRead, id, 0, 0,
        std::memory_order_relaxed, ValueType::kUnsigned, true, site);
  Object& data = objects_[id];
  const Clock& mine = threads_[current_].hb;
  if (write && !data.dead) {
    for (unsigned t = 0; t <= kMain; ++t) {
      if (data.accessed.at[t] > mine.at[t]) {
        const bool wrote = t == data.writer && data.accessed.at[t] == data.writeEpoch;
        fail(Failure::kRace, raceText(data, "write", current_, site, t, wrote, data.sites[t]));
      }
    }
  }
  if (!enter(current_, id, site)) abandon();
  if (write) {
    data.writer = static_cast<uint8_t>(current_);
    data.writeEpoch = mine.at[current_];
    data.writeSite = site;
  }
}

}  // namespace millrace::explorer
