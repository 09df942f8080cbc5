// SPDX-License-Identifier: Apache-2.0
// The modelled memory: operations, store buffers, and happens-before as C++20 defines it.
#include "explorer_engine.h"

namespace millrace::explorer {

using namespace detail;

namespace {

bool acquires(MemoryOrder order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}

bool releases(MemoryOrder order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

uint8_t touchOf(OpKind kind) {
  switch (kind) {
    case OpKind::kLoad:
      return kRead;
    case OpKind::kStore:
      return kWrite;
    case OpKind::kRmw:
    case OpKind::kCas:
    case OpKind::kLock:
    case OpKind::kTryLock:
    case OpKind::kUnlock:
      return kRead | kWrite;
    case OpKind::kFutexWait:
      return kRead | kQueue;
    case OpKind::kFutexWake:
      return kQueue;
    default:
      return kNothing;
  }
}

}  // namespace

// ---------------------------------------------------------------------- operations

uint64_t Engine::perform(Access& access) {
  Op op;
  const bool mutex = access.kind == OpKind::kLock || access.kind == OpKind::kTryLock ||
                     access.kind == OpKind::kUnlock;
  op.object = find(access.object, mutex ? ObjectKind::kMutex : ObjectKind::kAtomic, access.cell);
  op.kind = access.kind;
  op.order = access.order;
  op.failOrder = access.failOrder;
  op.type = access.type;
  op.operand = access.operand;
  op.expected = access.expected;
  op.combine = access.combine;
  op.site = access.site;
  if (op.kind == OpKind::kStore && op.order != std::memory_order_seq_cst && current_ != kMain) {
    buffer(current_, op);
    return 0;
  }
  if (access.weak && spuriousCas_ < options_.spuriousCasFailures && choose(2, access.site) == 1) {
    ++spuriousCas_;
    op.kind = OpKind::kLoad;
    op.order = op.failOrder;
  }
  op.touch = touchOf(op.kind);
  announce(op);
  access.ok = op.ok;
  return op.result;
}

int Engine::futexWait(const void* object, Cell cell, uint32_t expected, int64_t deadline,
                      Site site) {
  if (spuriousWake_ < options_.spuriousWakeups && choose(2, site) == 1) {
    ++spuriousWake_;
    return static_cast<int>(FutexResult::kWoken);
  }
  Op op;
  op.kind = OpKind::kFutexWait;
  op.touch = touchOf(op.kind);
  op.object = find(object, ObjectKind::kAtomic, cell);
  op.expected = expected;
  op.deadline = deadline;
  op.site = site;
  announce(op);
  return static_cast<int>(op.result);
}

int Engine::futexWake(const void* object, Cell cell, int count, Site site) {
  Op op;
  op.kind = OpKind::kFutexWake;
  op.touch = touchOf(op.kind);
  op.object = find(object, ObjectKind::kAtomic, cell);
  op.operand = static_cast<uint64_t>(std::max(count, 0));
  op.site = site;
  announce(op);
  return static_cast<int>(op.result);
}

void Engine::relax(Site site) {
  ThreadState& state = threads_[current_];
  if (options_.relax == Relax::kFree || current_ == kMain || state.seen.empty()) return;
  Op op;
  op.kind = OpKind::kRelax;
  op.site = site;
  announce(op);
}

void Engine::fence(MemoryOrder order, Site site) {
  ThreadState& state = threads_[current_];
  if (order == std::memory_order_seq_cst && state.buffered()) {
    Op op;
    op.kind = OpKind::kFence;
    op.site = site;
    announce(op);
  }
  if (order == std::memory_order_seq_cst) state.fenceFloor = static_cast<uint32_t>(writes_.size());
  if (acquires(order)) state.hb.join(state.acquirable);
  if (releases(order)) {
    state.releaseFence = state.hb;
    ++state.hb.at[current_];
  }
}

/// Makes the announced operation happen.
void Engine::apply(unsigned thread, Op& op) {
  ThreadState& state = threads_[thread];
  switch (op.kind) {
    case OpKind::kResume:
      op.result = static_cast<uint64_t>(state.woken ? FutexResult::kWoken : FutexResult::kTimedOut);
      if (!state.woken) {
        now_ = std::max(now_, op.deadline);
        waiters_.erase(std::find(waiters_.begin(), waiters_.end(), thread));
      }
      state.queued = state.woken = false;
      trace(thread, op.kind, op.object, 0, op.result, op.order, op.type, true, op.site);
      return;
    case OpKind::kRelax:
    case OpKind::kFence:
      trace(thread, op.kind, op.object, 0, 0, op.order, op.type, true, op.site);
      return;
    default:
      break;
  }
  // A futex is woken by address: the word may be gone by then, and nobody sleeps on it any more.
  if (op.kind != OpKind::kFutexWake && !enter(thread, op.object, op.site)) {
    trace(thread, op.kind, op.object, 0, 0, op.order, op.type, false, op.site);
    return;
  }
  switch (op.kind) {
    case OpKind::kLoad:
      applyLoad(thread, op, op.order);
      break;
    case OpKind::kStore:
      applyStore(thread, op);
      break;
    case OpKind::kRmw:
    case OpKind::kCas:
      applyRmw(thread, op);
      break;
    case OpKind::kFutexWait:
      applyFutexWait(thread, op);
      break;
    case OpKind::kFutexWake:
      applyFutexWake(op);
      break;
    default:
      applyLock(thread, op);
      break;
  }
  const uint64_t after = op.kind == OpKind::kFutexWake || op.kind == OpKind::kFutexWait
                             ? op.result
                             : objects_[op.object].value;
  trace(thread, op.kind, op.object, op.kind == OpKind::kFutexWait ? op.expected : op.result, after,
        op.kind == OpKind::kCas && !op.ok ? op.failOrder : op.order, op.type, op.ok, op.site);
  trace_.back().stale = op.stale;
}

void Engine::applyLoad(unsigned thread, Op& op, MemoryOrder order) {
  const ThreadState& state = threads_[thread];
  noteRead(thread, op.object);
  for (size_t i = state.buffer.size(); i-- > state.head;) {
    if (state.buffer[i].object == op.object) {
      op.result = state.buffer[i].value;
      op.ok = true;  // shown as forwarded
      return;
    }
  }
  const Object& object = objects_[op.object];
  op.result = object.value;
  op.ok = false;
  if (options_.staleLoads == 0 || thread == kMain) {
    acquire(thread, object.sync, order);
    return;
  }
  const uint32_t index = pickWrite(thread, op.object, order);
  if (index != object.lastWrite) {
    op.stale = true;
    --objects_[op.object].seenVersion[thread];  // a spinning thread has something new to see
  }
  op.result = writes_[index].value;
  acquire(thread, writes_[index].sync, order);
}

void Engine::applyStore(unsigned thread, Op& op) {
  Object& object = objects_[op.object];
  const uint32_t epoch = threads_[thread].hb.at[thread];
  op.result = object.value;
  setValue(object, op.operand, thread);
  object.sync = releasedBy(thread, op.order);
  addWrite(op.object, thread, epoch, op.order == std::memory_order_seq_cst);
}

void Engine::applyRmw(unsigned thread, Op& op) {
  Object& object = objects_[op.object];
  op.result = object.value;
  op.ok = op.kind == OpKind::kRmw || object.value == op.expected;
  if (!op.ok) {
    acquire(thread, object.sync, op.failOrder);
    sawLatest(thread, op.object);
  } else {
    acquire(thread, object.sync, op.order);
    const uint32_t epoch = threads_[thread].hb.at[thread];
    setValue(object, op.kind == OpKind::kRmw ? op.combine(object.value, op.operand) : op.operand,
             thread);
    object.sync.join(releasedBy(thread, op.order));  // goes on with the release sequence
    addWrite(op.object, thread, epoch, op.order == std::memory_order_seq_cst);
  }
  noteRead(thread, op.object);
}

void Engine::applyLock(unsigned thread, Op& op) {
  Object& mutex = objects_[op.object];
  op.result = mutex.value;
  if (op.kind == OpKind::kUnlock) {
    if (mutex.value != thread + 1) {
      report(Failure::kMisuse,
             threadName(thread) + " unlocks " + nameOf(op.object) + ", which it does not hold");
      return;
    }
    setValue(mutex, 0, thread);
    mutex.sync = releasedBy(thread, std::memory_order_release);
    return;
  }
  op.ok = mutex.value == 0;
  if (op.ok) {
    setValue(mutex, thread + 1, thread);
    acquire(thread, mutex.sync, std::memory_order_acquire);
  } else {
    noteRead(thread, op.object);
  }
}

void Engine::applyFutexWait(unsigned thread, Op& op) {
  noteRead(thread, op.object);
  sawLatest(thread, op.object);
  ThreadState& state = threads_[thread];
  const bool asExpected =
      static_cast<uint32_t>(objects_[op.object].value) == static_cast<uint32_t>(op.expected);
  op.result =
      static_cast<uint64_t>(asExpected ? FutexResult::kTimedOut : FutexResult::kNotExpected);
  op.ok = asExpected && op.deadline > now_;
  if (!op.ok) return;
  state.queued = true;
  waiters_.push_back(thread);
}

void Engine::applyFutexWake(Op& op) {
  op.expected = 0;  // who was woken, for the clocks of the reduction
  for (size_t i = 0; i < waiters_.size() && op.result < op.operand;) {
    const uint32_t t = waiters_[i];
    if (threads_[t].pending.object != op.object) {
      ++i;
      continue;
    }
    threads_[t].woken = true;
    op.expected |= bit(t);
    ++op.result;
    idleRounds_ = 0;
    waiters_.erase(waiters_.begin() + static_cast<ptrdiff_t>(i));
  }
}

// ---------------------------------------------------------------------- store buffers

void Engine::buffer(unsigned thread, const Op& op) {
  if (!enter(thread, op.object, op.site)) abandon();
  ThreadState& state = threads_[thread];
  if (state.head == state.buffer.size()) {
    state.buffer.clear();
    state.head = 0;
  }
  const uint32_t epoch = state.hb.at[thread];
  state.buffer.push_back({op.object, false, epoch, op.operand, releasedBy(thread, op.order),
                          state.step, op.order, op.type, op.site});
  trace(thread, OpKind::kBuffered, op.object, 0, op.operand, op.order, op.type, true, op.site);
}

/// Lets the oldest store of a thread reach memory.
Op Engine::flush(unsigned thread) {
  ThreadState& state = threads_[thread];
  const BufferedStore store = state.buffer[state.head++];
  Op op;
  op.kind = OpKind::kFlush;
  op.object = store.object;
  Object& object = objects_[store.object];
  trace(bufferOf(thread), OpKind::kFlush, store.object, object.value, store.value, store.order,
        store.type, true, store.site);
  if (store.dropped) return op;
  op.touch = kWrite;
  if (object.dead) {
    report(Failure::kUseAfterDestroy, "a store of " + threadName(thread) + " reaches " +
                                          nameOf(store.object) + " after its destruction");
    return op;
  }
  setValue(object, store.value, thread);
  object.sync = store.sync;
  addWrite(store.object, thread, store.epoch, false);
  return op;
}

// ---------------------------------------------------------------------- happens-before

void Engine::acquire(unsigned thread, const Clock& sync, MemoryOrder order) {
  (acquires(order) ? threads_[thread].hb : threads_[thread].acquirable).join(sync);
}

/// What a store of this order hands on. Later accesses of the thread are not part of it.
Clock Engine::releasedBy(unsigned thread, MemoryOrder order) {
  ThreadState& state = threads_[thread];
  if (!releases(order)) return state.releaseFence;
  const Clock clock = state.hb;
  ++state.hb.at[thread];
  return clock;
}

void Engine::setValue(Object& object, uint64_t value, unsigned by) {
  if (object.value == value) return;
  object.value = value;
  ++object.version;
  idleRounds_ = 0;
  // A thread does not wait for itself.
  if (by < kMaxThreads && object.seenRound[by] == threads_[by].round &&
      object.seenVersion[by] + 1 == object.version) {
    object.seenVersion[by] = object.version;
  }
}

void Engine::noteRead(unsigned thread, uint32_t id) {
  if (thread == kMain) return;
  Object& object = objects_[id];
  ThreadState& state = threads_[thread];
  if (object.seenRound[thread] == state.round) return;  // the first read counts
  state.seen.push_back(id);
  object.seenRound[thread] = state.round;
  object.seenVersion[thread] = object.version;
}

bool Engine::sawChange(unsigned thread) const {
  for (const uint32_t id : threads_[thread].seen) {
    if (objects_[id].dead || objects_[id].version != objects_[id].seenVersion[thread]) return true;
  }
  return false;
}

}  // namespace millrace::explorer
