// SPDX-License-Identifier: Apache-2.0
// Where the objects of explorer_atomic.h enter the model, or behave as ordinary values if nothing
// is explored.
#include "explorer_engine.h"

namespace millrace::explorer {

namespace detail {

namespace {

/// One thread, no execution: the object's own cell.
uint64_t performOutside(Access& access) {
  const Cell& cell = access.cell;
  const uint64_t old = cell.get(cell.at);
  access.ok = true;
  switch (access.kind) {
    case OpKind::kStore:
      cell.set(cell.at, access.operand);
      break;
    case OpKind::kRmw:
      cell.set(cell.at, access.combine(old, access.operand));
      break;
    case OpKind::kCas:
      access.ok = old == access.expected;
      if (access.ok) cell.set(cell.at, access.operand);
      break;
    case OpKind::kLock:
    case OpKind::kTryLock:
      access.ok = old == 0;
      cell.set(cell.at, 1);
      break;
    case OpKind::kUnlock:
      cell.set(cell.at, 0);
      break;
    default:
      break;
  }
  return old;
}

}  // namespace

uint64_t perform(Access& access) noexcept {
  Engine* engine = Engine::active();
  return engine != nullptr ? engine->perform(access) : performOutside(access);
}

void created(const void* object, ObjectKind kind, uint64_t value, Site site) noexcept {
  if (Engine* engine = Engine::active()) engine->created(object, kind, value, site);
}

void destroyed(const void* object, ObjectKind kind, Site site) noexcept {
  if (Engine* engine = Engine::active()) engine->destroyed(object, kind, site);
}

void plainAccess(const void* object, bool write, Site site) noexcept {
  if (Engine* engine = Engine::active()) engine->plainAccess(object, write, site);
}

void relax(Site site) noexcept {
  if (Engine* engine = Engine::active()) engine->relax(site);
}

int futexWait(const void* object, Cell cell, uint32_t expected, int64_t deadline,
              Site site) noexcept {
  if (Engine* engine = Engine::active())
    return engine->futexWait(object, cell, expected, deadline, site);
  return static_cast<int>(static_cast<uint32_t>(cell.get(cell.at)) == expected
                              ? FutexResult::kTimedOut
                              : FutexResult::kNotExpected);
}

int futexWake(const void* object, Cell cell, int count, Site site) noexcept {
  Engine* engine = Engine::active();
  return engine != nullptr ? engine->futexWake(object, cell, count, site) : 0;
}

}  // namespace detail

void fence(MemoryOrder order, Site site) noexcept {
  if (Engine* engine = Engine::active()) engine->fence(order, site);
}

int64_t now() noexcept {
  Engine* engine = Engine::active();
  return engine != nullptr ? engine->now() : 0;
}

int currentThread() noexcept {
  Engine* engine = Engine::active();
  return engine != nullptr && engine->current() != detail::kMain
             ? static_cast<int>(engine->current())
             : -1;
}

int choose(int count, Site site) noexcept {
  Engine* engine = Engine::active();
  return engine != nullptr ? engine->choose(count, site) : 0;
}

void name(const void* object, const char* text) noexcept {
  if (Engine* engine = Engine::active()) engine->name(object, text);
}

}  // namespace millrace::explorer
