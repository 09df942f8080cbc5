// SPDX-License-Identifier: Apache-2.0
// The atomic shim of the interleaving tests: the names of millrace/base/atomic.h, seen by the
// explorer.
//
// Threads: inside explore() every access is a step of a virtual thread; outside of it an object is
// an ordinary value that one thread uses. Ownership: the objects hold their first value only; while
// an execution runs, the model holds the current one under the object's address, so memory that is
// already freed is never touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace millrace {

using MemoryOrder = std::memory_order;

namespace explorer {

/// A line of source code; a stand-in for std::source_location, which clang 14 lacks.
struct Site {
  const char* file = nullptr;
  unsigned line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) noexcept {
    return Site{file, line};
  }
};

namespace detail {

enum class ObjectKind : uint8_t { kAtomic, kPlain, kMutex };
enum class ValueType : uint8_t { kUnsigned, kSigned, kPointer };

enum class OpKind : uint8_t {
  // chosen by the scheduler
  kLoad,
  kStore,
  kRmw,
  kCas,
  kFence,
  kLock,
  kTryLock,
  kUnlock,
  kFutexWait,
  kFutexWake,
  kResume,
  kRelax,
  kFlush,
  // local: part of the step before
  kBuffered,
  kPlainRead,
  kPlainWrite,
  kDestroy,
  kChoose,
};

using Combine = uint64_t (*)(uint64_t old, uint64_t operand);

/// The value that an object itself holds: used as long as it is not part of an execution.
struct Cell {
  void* at;
  uint64_t (*get)(const void* at);
  void (*set)(void* at, uint64_t bits);
};

/// One access on its way from an object into the model.
struct Access {
  const void* object;
  Cell cell;
  OpKind kind;
  MemoryOrder order = std::memory_order_seq_cst;
  MemoryOrder failOrder = std::memory_order_relaxed;
  ValueType type = ValueType::kUnsigned;
  bool weak = false;
  bool ok = false;  // out: the exchange happened, the lock was taken
  uint64_t operand = 0;
  uint64_t expected = 0;
  Combine combine = nullptr;
  Site site = {};
};

uint64_t perform(Access& access) noexcept;
void created(const void* object, ObjectKind kind, uint64_t value, Site site) noexcept;
void destroyed(const void* object, ObjectKind kind, Site site) noexcept;
void plainAccess(const void* object, bool write, Site site) noexcept;
void relax(Site site) noexcept;
int futexWait(const void* object, Cell cell, uint32_t expected, int64_t deadline,
              Site site) noexcept;
int futexWake(const void* object, Cell cell, int count, Site site) noexcept;

template <class T>
constexpr uint64_t toBits(T value) noexcept {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uintptr_t>(value);
  } else if constexpr (std::is_enum_v<T>) {
    return toBits(static_cast<std::underlying_type_t<T>>(value));
  } else {
    return static_cast<uint64_t>(value);  // sign extended: equal values have equal bits
  }
}

template <class T>
constexpr T fromBits(uint64_t bits) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(static_cast<uintptr_t>(bits));
  } else {
    return static_cast<T>(bits);
  }
}

template <class T>
constexpr ValueType valueType() noexcept {
  if constexpr (std::is_pointer_v<T>) return ValueType::kPointer;
  return std::is_signed_v<T> ? ValueType::kSigned : ValueType::kUnsigned;
}

template <class T>
Cell cellOf(T& value) noexcept {
  return {&value, [](const void* at) { return toBits(*static_cast<const T*>(at)); },
          [](void* at, uint64_t bits) { *static_cast<T*>(at) = fromBits<T>(bits); }};
}

/// The order a failed exchange has when only one order was given.
constexpr MemoryOrder failureOrder(MemoryOrder order) noexcept {
  if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
  return order == std::memory_order_release ? std::memory_order_relaxed : order;
}

}  // namespace detail
}  // namespace explorer

/// Stands in for std::atomic<T> and has its size. T is an integer, bool, an enumeration or a
/// pointer.
template <class T>
class Atomic {
  using Site = explorer::Site;
  using Access = explorer::detail::Access;
  using OpKind = explorer::detail::OpKind;

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  constexpr Atomic() noexcept : Atomic(T{}) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as std::atomic has it
  constexpr Atomic(T value, Site site = Site::current()) noexcept : value_(value) {
    if (!std::is_constant_evaluated()) {
      explorer::detail::created(this, explorer::detail::ObjectKind::kAtomic, bits(value), site);
    }
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  ~Atomic() { explorer::detail::destroyed(this, explorer::detail::ObjectKind::kAtomic, Site{}); }

  T load(MemoryOrder order = std::memory_order_seq_cst,
         Site site = Site::current()) const noexcept {
    Access access = begin(OpKind::kLoad, order, site);
    return explorer::detail::fromBits<T>(explorer::detail::perform(access));
  }

  void store(T value, MemoryOrder order = std::memory_order_seq_cst,
             Site site = Site::current()) noexcept {
    Access access = begin(OpKind::kStore, order, site);
    access.operand = explorer::detail::toBits(value);
    explorer::detail::perform(access);
  }

  T exchange(T value, MemoryOrder order = std::memory_order_seq_cst,
             Site site = Site::current()) noexcept {
    return modify([](uint64_t, uint64_t operand) { return operand; },
                  explorer::detail::toBits(value), order, site);
  }

  bool compare_exchange_strong(T& expected, T desired, MemoryOrder success, MemoryOrder failure,
                               Site site = Site::current()) noexcept {
    return compareExchange(expected, desired, success, failure, false, site);
  }
  bool compare_exchange_strong(T& expected, T desired,
                               MemoryOrder order = std::memory_order_seq_cst,
                               Site site = Site::current()) noexcept {
    return compareExchange(expected, desired, order, explorer::detail::failureOrder(order), false,
                           site);
  }
  bool compare_exchange_weak(T& expected, T desired, MemoryOrder success, MemoryOrder failure,
                             Site site = Site::current()) noexcept {
    return compareExchange(expected, desired, success, failure, true, site);
  }
  bool compare_exchange_weak(T& expected, T desired, MemoryOrder order = std::memory_order_seq_cst,
                             Site site = Site::current()) noexcept {
    return compareExchange(expected, desired, order, explorer::detail::failureOrder(order), true,
                           site);
  }

  /// Integers: `Step` is T. Pointers: a distance in elements.
  using Step = std::conditional_t<std::is_pointer_v<T>, ptrdiff_t, T>;

  T fetch_add(Step step, MemoryOrder order = std::memory_order_seq_cst,
              Site site = Site::current()) noexcept {
    return modify(&sum, static_cast<uint64_t>(step), order, site);
  }
  T fetch_sub(Step step, MemoryOrder order = std::memory_order_seq_cst,
              Site site = Site::current()) noexcept {
    return modify(&sum, uint64_t{0} - static_cast<uint64_t>(step), order, site);
  }
  T fetch_or(T mask, MemoryOrder order = std::memory_order_seq_cst,
             Site site = Site::current()) noexcept {
    return modify([](uint64_t old, uint64_t operand) { return old | operand; }, bits(mask), order,
                  site);
  }
  T fetch_and(T mask, MemoryOrder order = std::memory_order_seq_cst,
              Site site = Site::current()) noexcept {
    return modify([](uint64_t old, uint64_t operand) { return old & operand; }, bits(mask), order,
                  site);
  }
  T fetch_xor(T mask, MemoryOrder order = std::memory_order_seq_cst,
              Site site = Site::current()) noexcept {
    return modify([](uint64_t old, uint64_t operand) { return old ^ operand; }, bits(mask), order,
                  site);
  }

  /// For the shims of system calls on this word (futex). Not part of std::atomic.
  explorer::detail::Cell cellForExplorer() const noexcept {
    return explorer::detail::cellOf(value_);
  }

 private:
  static T value(uint64_t raw) noexcept { return explorer::detail::fromBits<T>(raw); }
  static uint64_t bits(T plain) noexcept { return explorer::detail::toBits(plain); }
  static uint64_t sum(uint64_t old, uint64_t step) noexcept {
    if constexpr (std::is_pointer_v<T>) {
      return bits(value(old) + static_cast<ptrdiff_t>(step));
    } else {
      return bits(value(old + step));  // wraps like T
    }
  }

  Access begin(OpKind kind, MemoryOrder order, Site site) const noexcept {
    Access access{};
    access.object = this;
    access.cell = cellForExplorer();
    access.kind = kind;
    access.order = order;
    access.type = explorer::detail::valueType<T>();
    access.site = site;
    return access;
  }

  T modify(explorer::detail::Combine combine, uint64_t operand, MemoryOrder order,
           Site site) noexcept {
    Access access = begin(OpKind::kRmw, order, site);
    access.combine = combine;
    access.operand = operand;
    return value(explorer::detail::perform(access));
  }

  bool compareExchange(T& expected, T desired, MemoryOrder success, MemoryOrder failure, bool weak,
                       Site site) noexcept {
    Access access = begin(OpKind::kCas, success, site);
    access.failOrder = failure;
    access.weak = weak;
    access.expected = bits(expected);
    access.operand = bits(desired);
    const uint64_t seen = explorer::detail::perform(access);
    if (!access.ok) expected = value(seen);
    return access.ok;
  }

  mutable T value_;
};

/// Stands in for std::mutex; a Lockable for std::lock_guard and std::unique_lock.
class Mutex {
  using Site = explorer::Site;

 public:
  constexpr Mutex() noexcept {
    if (!std::is_constant_evaluated()) {
      explorer::detail::created(this, explorer::detail::ObjectKind::kMutex, 0, Site{});
    }
  }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { explorer::detail::destroyed(this, explorer::detail::ObjectKind::kMutex, Site{}); }

  void lock(Site site = Site::current()) noexcept { act(explorer::detail::OpKind::kLock, site); }
  bool try_lock(Site site = Site::current()) noexcept {
    return act(explorer::detail::OpKind::kTryLock, site);
  }
  void unlock(Site site = Site::current()) noexcept {
    act(explorer::detail::OpKind::kUnlock, site);
  }

 private:
  bool act(explorer::detail::OpKind kind, Site site) noexcept {
    explorer::detail::Access access{};
    access.object = this;
    access.cell = explorer::detail::cellOf(held_);
    access.kind = kind;
    access.site = site;
    explorer::detail::perform(access);
    return access.ok;
  }

  uint64_t held_ = 0;
};

/// Data that is not atomic. Two accesses, one of them a write, that no happens-before orders are
/// reported.
template <class T>
class Plain {
  using Site = explorer::Site;

 public:
  Plain() : Plain(T{}) {}
  explicit Plain(T value, Site site = Site::current()) : value_(std::move(value)) {
    announce(site);
  }
  Plain(const Plain& other) : value_(other.read()) { announce(Site{}); }
  Plain(Plain&& other) : value_(std::move(other.write())) { announce(Site{}); }
  Plain& operator=(const Plain& other) {
    write() = other.read();
    return *this;
  }
  Plain& operator=(Plain&& other) {
    write() = std::move(other.write());
    return *this;
  }
  ~Plain() { explorer::detail::destroyed(this, explorer::detail::ObjectKind::kPlain, Site{}); }

  const T& read(Site site = Site::current()) const {
    explorer::detail::plainAccess(this, false, site);
    return value_;
  }
  T& write(Site site = Site::current()) {
    explorer::detail::plainAccess(this, true, site);
    return value_;
  }

 private:
  void announce(Site site) {
    explorer::detail::created(this, explorer::detail::ObjectKind::kPlain, 0, site);
  }

  T value_;
};

/// A spinning loop's pause: the thread goes on when something it has read since its last pause was
/// changed by another thread, or when no other thread can move.
inline void cpuRelax(explorer::Site site = explorer::Site::current()) noexcept {
  explorer::detail::relax(site);
}

namespace explorer {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

enum class FutexResult { kWoken, kNotExpected, kTimedOut };

/// futex(FUTEX_WAIT). `deadline` is in the virtual time of now(), which moves only when nothing
/// else can.
inline FutexResult futexWait(const Atomic<uint32_t>& word, uint32_t expected,
                             int64_t deadline = kForever, Site site = Site::current()) noexcept {
  return static_cast<FutexResult>(
      detail::futexWait(&word, word.cellForExplorer(), expected, deadline, site));
}

/// futex(FUTEX_WAKE): wakes at most `count`, the longest waiting first; returns how many.
inline int futexWake(const Atomic<uint32_t>& word, int count,
                     Site site = Site::current()) noexcept {
  return detail::futexWake(&word, word.cellForExplorer(), count, site);
}

/// std::atomic_thread_fence. The library uses none; here to model code that does.
void fence(MemoryOrder order, Site site = Site::current()) noexcept;

/// Virtual time, 0 at the start of an execution.
int64_t now() noexcept;

/// Index of the running virtual thread in order of creation, -1 in setup, in final checks and
/// outside. For code that would ask for the thread id: virtual threads share their thread-locals.
int currentThread() noexcept;

/// A choice of the environment, 0..count-1: all of them are explored.
int choose(int count, Site site = Site::current()) noexcept;

/// Gives an Atomic, Plain or Mutex a name in printed schedules. `text` must outlive the execution.
void name(const void* object, const char* text) noexcept;

}  // namespace explorer
}  // namespace millrace
