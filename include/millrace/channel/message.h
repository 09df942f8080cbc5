// SPDX-License-Identifier: Apache-2.0
// Message: what travels through a pipeline. A move-only value of any type, erased.
//
//   void channelRead(Context& ctx, Message&& msg) override {
//     if (ByteBuf* bytes = msg.as<ByteBuf>()) ...         // look
//     Request request = msg.take<Request>();              // take it out
//
// Passed as Message&&: a handler that does not move from it leaves it to be dropped.
//
// Threads: belongs to one thread at a time. Ownership: it owns its value; values of up to 64 bytes
// that move without throwing live inside, larger ones are allocated.
// Failure: take() of another type than the one inside throws std::logic_error, which in a handler
// becomes exceptionCaught(); ask by is() or as().
#pragma once

#include <millrace/base/check.h>
#include <millrace/base/export.h>
#include <millrace/buffer/byte_buf.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace millrace {

/// True for types whose bytes may be copied instead of moving and destroying them.
template <class T>
inline constexpr bool isRelocatable = std::is_trivially_copyable_v<T>;
template <>
inline constexpr bool isRelocatable<ByteBuf> = true;

namespace internal {

struct MessageOps {
  void (*relocate)(void* to, void* from) noexcept;  // null: copying the bytes is enough
  void (*destroy)(void* storage) noexcept;          // null: nothing to do
  const std::type_info* type;
  std::size_t size;  // of the bytes in use
  bool onHeap;
  bool local;  // a type of one source file: its name may mean another type elsewhere
};

/// The table that every library uses for ByteBuf, so that asking for one is one comparison.
MILLRACE_API extern const MessageOps kByteBufMessage;

template <class T>
constexpr bool isLocalType() noexcept {
  const std::string_view name = __PRETTY_FUNCTION__;
  return name.find("(anonymous") != name.npos || name.find("{anonymous") != name.npos ||
         name.find("lambda") != name.npos;
}

template <class T>
struct MessageType {
  static constexpr std::size_t kInPlace = 64;
  static constexpr bool kFits = sizeof(T) <= kInPlace && alignof(T) <= alignof(std::max_align_t) &&
                                std::is_nothrow_move_constructible_v<T>;

  static T* at(void* storage) noexcept {
    if constexpr (kFits) return std::launder(static_cast<T*>(storage));
    T* made;
    std::memcpy(&made, storage, sizeof made);
    return made;
  }
  static void relocate(void* to, void* from) noexcept {
    ::new (to) T(std::move(*at(from)));
    at(from)->~T();
  }
  static void destroy(void* storage) noexcept {
    if constexpr (kFits) {
      at(storage)->~T();
    } else {
      delete at(storage);
    }
  }
  static constexpr MessageOps kOwn{!kFits || isRelocatable<T> ? nullptr : &relocate,
                                   kFits&& std::is_trivially_destructible_v<T> ? nullptr : &destroy,
                                   &typeid(T),
                                   kFits ? sizeof(T) : sizeof(T*),
                                   !kFits,
                                   isLocalType<T>()};
  static const MessageOps* ops() noexcept {
    if constexpr (std::is_same_v<T, ByteBuf>) return &kByteBufMessage;
    return &kOwn;
  }
};

}  // namespace internal

class Message {
 public:
  /// Bytes that fit without an allocation.
  static constexpr std::size_t kInPlace = 64;

  /// Nothing.
  Message() noexcept = default;
  template <class T, class D = std::decay_t<T>>
  requires(!std::is_same_v<D, Message> && std::is_constructible_v<D, T&&>)
      Message(T&& value) {  // NOLINT: implicit, so that values are passed as they stand
    using Type = internal::MessageType<D>;
    if constexpr (Type::kFits) {
      ::new (static_cast<void*>(storage_)) D(std::forward<T>(value));
    } else {
      D* made = new D(std::forward<T>(value));
      std::memcpy(storage_, &made, sizeof made);
    }
    ops_ = Type::ops();
  }
  Message(Message&& other) noexcept { take(other); }
  Message& operator=(Message&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() { reset(); }

  /// True if there is something in it.
  explicit operator bool() const noexcept { return ops_ != nullptr; }
  /// What kind of thing; typeid(void) if it is empty.
  const std::type_info& type() const noexcept {
    return ops_ == nullptr ? typeid(void) : *ops_->type;
  }

  template <class T>
  bool is() const noexcept {
    return ops_ != nullptr && isSame(internal::MessageType<T>::ops());
  }
  /// The value if it is a T, else null.
  template <class T>
  T* as() noexcept {
    return is<T>() ? internal::MessageType<T>::at(storage_) : nullptr;
  }
  template <class T>
  const T* as() const noexcept {
    return const_cast<Message*>(this)->as<T>();  // NOLINT: nothing is changed
  }
  /// Moves the value out; the Message is empty afterwards. Throws std::logic_error unless is<T>().
  template <class T>
  T take() {
    T* value = as<T>();
    if (__builtin_expect(value == nullptr, 0)) wrongType(typeid(T));
    T taken(std::move(*value));
    reset();
    return taken;
  }
  /// For the library: the same as is<ByteBuf>() for messages of this library, in one comparison.
  bool isByteBuf() const noexcept { return ops_ == &internal::kByteBufMessage; }
  ByteBuf& byteBuf() noexcept { return *internal::MessageType<ByteBuf>::at(storage_); }
  /// Moves the ByteBuf to raw memory.
  void releaseByteBuf(void* to) noexcept {
    std::memcpy(to, storage_, sizeof(ByteBuf));
    ops_ = nullptr;
  }
  void reset() noexcept {
    if (ops_ == nullptr) return;
    const internal::MessageOps* ops = std::exchange(ops_, nullptr);
    if (ops->destroy != nullptr) ops->destroy(storage_);
  }

 private:
  [[noreturn]] MILLRACE_API void wrongType(const std::type_info& wanted) const;
  bool isSame(const internal::MessageOps* ops) const noexcept {
    return ops_ == ops || (!ops_->local && !ops->local && *ops_->type == *ops->type);
  }
  void take(Message& other) noexcept {
    if (other.ops_ == nullptr) return;
    if (other.ops_->relocate == nullptr) {
      // Copies of fixed sizes need no call.
      if (other.ops_->size <= kInPlace / 2) {
        std::memcpy(storage_, other.storage_, kInPlace / 2);
      } else {
        std::memcpy(storage_, other.storage_, kInPlace);
      }
    } else {
      other.ops_->relocate(storage_, other.storage_);
    }
    ops_ = std::exchange(other.ops_, nullptr);
  }

  const internal::MessageOps* ops_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kInPlace];
};

}  // namespace millrace
