// SPDX-License-Identifier: Apache-2.0
// Ref<T>: a counted pointer to an object that carries its own count.
//
// Against std::shared_ptr: one word, no control block, and `this` can be turned into a Ref at any
// time. Ref itself is not shared between threads; the objects it points to may be.
#pragma once

#include <millrace/base/atomic.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace millrace {

/// Base of counted objects. `T` is the class that `delete` is called on. Starts with no owner.
template <class T>
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  /// Any thread that already has, or is given by an owner, a reference.
  void ref() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Any thread. The last one deletes: everything other owners did happens before.
  void unref() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete static_cast<const T*>(this);
  }

  /// True if nobody else has a reference. Any thread that has one.
  bool hasOneOwner() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  RefCounted() noexcept = default;
  ~RefCounted() = default;

 private:
  mutable Atomic<std::uint32_t> count_{0};
};

/// Owns one count of a T; null when empty.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  Ref(std::nullptr_t) noexcept {}  // NOLINT: implicit like a pointer
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) object_->ref();
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->unref();
  }

  /// Takes over a count that somebody else added with ref().
  static Ref adopt(T* object) noexcept {
    Ref taken;
    taken.object_ = object;
    return taken;
  }
  /// Gives the count away; whoever gets the pointer must adopt() or unref() it.
  [[nodiscard]] T* release() noexcept { return std::exchange(object_, nullptr); }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Ref&, const Ref&) noexcept = default;

 private:
  T* object_ = nullptr;
};

/// Makes a counted object with its first owner.
template <class T, class... Args>
Ref<T> makeRef(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace millrace
