// SPDX-License-Identifier: Apache-2.0
// Task: a move-only callable without arguments and result, the unit of work of every executor.
//
// Threads: a Task belongs to one thread at a time; executors hand it over.
// Ownership: it owns its callable. Callables of up to 48 bytes that move without throwing live
// inside the Task; larger ones are allocated. std::function would need copies and allocates beyond
// 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace millrace {

class Task {
 public:
  /// Bytes that fit without an allocation.
  static constexpr std::size_t kInPlace = 48;

  Task() noexcept = default;
  Task(std::nullptr_t) noexcept {}  // NOLINT: a null task is a null task however it is spelled

  /// Wraps `fn`. A null function pointer or an empty std::function gives an empty Task.
  template <class F, class D = std::decay_t<F>>
  requires(!std::is_same_v<D, Task> && std::is_invocable_v<D&>)
      Task(F&& fn) {  // NOLINT: implicit, so that lambdas are passed as they stand
    // A function passed by its name is never null, and compilers warn about the question.
    constexpr bool kIsFunction = std::is_function_v<std::remove_reference_t<F>>;
    if constexpr (std::is_constructible_v<bool, const D&> && !kIsClosure<D> && !kIsFunction) {
      if (!static_cast<bool>(fn)) return;
    }
    if constexpr (kFits<D>) {
      ::new (static_cast<void*>(storage_)) D(std::forward<F>(fn));
      ops_ = &kInPlaceOps<D>;
    } else {
      D* made = new D(std::forward<F>(fn));
      std::memcpy(storage_, &made, sizeof made);
      ops_ = &kHeapOps<D>;
    }
  }

  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (ops_ != nullptr && ops_->destroy != nullptr) ops_->destroy(storage_);
  }

  /// True if there is something to run.
  explicit operator bool() const noexcept { return ops_ != nullptr; }

  /// Runs the callable; it stays in the Task. REQUIRES: *this is not empty.
  void operator()() { ops_->invoke(storage_); }

  /// Destroys the callable; the Task is empty afterwards.
  void reset() noexcept {
    if (ops_ == nullptr) return;
    const Ops* ops = ops_;
    __atomic_store_n(&ops_, nullptr, __ATOMIC_RELAXED);  // see type()
    if (ops->destroy != nullptr) ops->destroy(storage_);
  }

  /// True if destroying it does nothing (or it is empty).
  bool isTrivial() const noexcept { return ops_ == nullptr || ops_->destroy == nullptr; }

  /// The callable's type, for messages about it; null if empty. May be asked while another thread
  /// resets the Task, as who cancels a timer does: the answer is one of the two.
  const std::type_info* type() const noexcept {
    const Ops* ops = __atomic_load_n(&ops_, __ATOMIC_RELAXED);
    return ops == nullptr ? nullptr : ops->type;
  }

 private:
  struct Ops {
    void (*invoke)(void* storage);
    void (*relocate)(void* to, void* from) noexcept;  // null: copying the bytes is enough
    void (*destroy)(void* storage) noexcept;          // null: nothing to do
    const std::type_info* type;
    bool isSmall;  // two words are all there is
  };

  static constexpr std::size_t kSmall = 2 * sizeof(std::uintptr_t);
  template <class D>
  static constexpr bool kIsClosure = std::is_class_v<D>&& std::is_empty_v<D>;
  template <class D>
  static constexpr bool kFits =
      sizeof(D) <= kInPlace &&
      alignof(D) <= alignof(void*) && std::is_nothrow_move_constructible_v<D>;

  template <class D>
  static D& inPlace(void* storage) noexcept {
    return *std::launder(static_cast<D*>(storage));
  }
  template <class D>
  static D* onHeap(void* storage) noexcept {
    D* made;
    std::memcpy(&made, storage, sizeof made);
    return made;
  }

  // Named functions, not lambdas: g++ numbers lambdas in initialisers of templates anew in each
  // source, so that the same name would mean different functions.
  template <class D>
  static void invokeInPlace(void* storage) {
    static_cast<void>(inPlace<D>(storage)());
  }
  template <class D>
  static void relocateInPlace(void* to, void* from) noexcept {
    ::new (to) D(std::move(inPlace<D>(from)));
    inPlace<D>(from).~D();
  }
  template <class D>
  static void destroyInPlace(void* storage) noexcept {
    inPlace<D>(storage).~D();
  }
  template <class D>
  static void invokeOnHeap(void* storage) {
    static_cast<void>((*onHeap<D>(storage))());
  }
  template <class D>
  static void destroyOnHeap(void* storage) noexcept {
    delete onHeap<D>(storage);
  }

  template <class D>
  static constexpr Ops kInPlaceOps{
      &invokeInPlace<D>, std::is_trivially_copyable_v<D> ? nullptr : &relocateInPlace<D>,
      std::is_trivially_destructible_v<D> ? nullptr : &destroyInPlace<D>, &typeid(D),
      sizeof(D) <= kSmall};
  template <class D>
  static constexpr Ops kHeapOps{&invokeOnHeap<D>, nullptr, &destroyOnHeap<D>, &typeid(D), true};

  // Word by word: the callable was just stored in words, and a wider load would have to wait until
  // those stores have reached the cache. Bytes that the callable leaves unset are copied with the
  // others; only whether two words are enough is asked.
  template <std::size_t kBytes>
  static void copyWords(std::byte* to, const std::byte* from) noexcept {
    asm("" : "+r"(from));  // compilers would warn of the unset bytes
#pragma GCC unroll 6
    for (std::size_t i = 0; i < kBytes; i += sizeof(std::uintptr_t)) {
      std::uintptr_t word;
      std::memcpy(&word, from + i, sizeof word);
      asm("" : "+r"(word));  // keeps the compiler from joining the words
      std::memcpy(to + i, &word, sizeof word);
    }
  }

  void take(Task& other) noexcept {
    if (other.ops_ == nullptr) return;
    if (other.ops_->relocate == nullptr) {
      copyWords<kSmall>(storage_, other.storage_);
      if (!other.ops_->isSmall) {
        copyWords<kInPlace - kSmall>(storage_ + kSmall, other.storage_ + kSmall);
      }
    } else {
      other.ops_->relocate(storage_, other.storage_);
    }
    ops_ = std::exchange(other.ops_, nullptr);
  }

  const Ops* ops_ = nullptr;
  alignas(void*) std::byte storage_[kInPlace];
};

static_assert(sizeof(Task) == Task::kInPlace + sizeof(void*));

}  // namespace millrace
