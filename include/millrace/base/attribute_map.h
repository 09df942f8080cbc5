// SPDX-License-Identifier: Apache-2.0
// AttributeMap: values that others hang on an object, each under a typed key of its own.
//
// Threads: any; a lock inside. Ownership: the map shares each value with those who got it, so a
// value that was removed or replaced stays valid for whoever still uses it.
#pragma once

#include <millrace/base/export.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace {

namespace internal {

/// What keys have in common. Identity is the address.
class AttributeKeyBase {
 public:
  AttributeKeyBase(const AttributeKeyBase&) = delete;
  AttributeKeyBase& operator=(const AttributeKeyBase&) = delete;
  std::string_view name() const noexcept { return name_; }

 protected:
  explicit constexpr AttributeKeyBase(std::string_view name) noexcept : name_(name) {}
  ~AttributeKeyBase() = default;

 private:
  std::string_view name_;
};

}  // namespace internal

/// Names one attribute of type T. Two keys are different even if their names are equal: make it a
/// constant at namespace scope, `inline const AttributeKey<User> kUser{"user"};`. It must outlive
/// the maps it is used with.
template <class T>
class AttributeKey final : public internal::AttributeKeyBase {
 public:
  /// `name` is for people and must live as long as the key: use a literal.
  explicit constexpr AttributeKey(std::string_view name) noexcept : AttributeKeyBase(name) {}
};

class MILLRACE_API AttributeMap {
 public:
  AttributeMap() = default;
  AttributeMap(const AttributeMap&) = delete;
  AttributeMap& operator=(const AttributeMap&) = delete;

  /// The value, null if absent. It is shared: a lock of its own is T's business.
  template <class T>
  std::shared_ptr<T> get(const AttributeKey<T>& key) const {
    return std::static_pointer_cast<T>(find(key));
  }
  template <class T>
  bool has(const AttributeKey<T>& key) const {
    return find(key) != nullptr;
  }
  /// Puts `value` there and returns what was; a null pointer removes.
  template <class T>
  std::shared_ptr<T> set(const AttributeKey<T>& key, std::shared_ptr<T> value) {
    return std::static_pointer_cast<T>(exchange(key, std::move(value)));
  }
  template <class T>
  std::shared_ptr<T> set(const AttributeKey<T>& key, T value) {
    return set(key, std::make_shared<T>(std::move(value)));
  }
  /// Takes the value out; null if absent.
  template <class T>
  std::shared_ptr<T> remove(const AttributeKey<T>& key) {
    return std::static_pointer_cast<T>(exchange(key, nullptr));
  }
  /// The value; if absent, the one that `factory()` makes (a T or a shared_ptr<T>). The factory
  /// runs without the lock: when several threads make one, the first to arrive wins and all get
  /// that. What the factory throws passes through.
  template <class T, class Factory>
  std::shared_ptr<T> getOrCreate(const AttributeKey<T>& key, Factory&& factory) {
    if (auto found = get(key)) return found;
    std::shared_ptr<T> made;
    if constexpr (std::is_convertible_v<decltype(factory()), std::shared_ptr<T>>) {
      made = factory();
    } else {
      made = std::make_shared<T>(factory());
    }
    return std::static_pointer_cast<T>(putIfAbsent(key, std::move(made)));
  }

  /// Takes all values out; they are let go without the lock.
  void clear();

  /// How many attributes there are, for tests and dumps.
  std::size_t size() const;
  /// The names of the attributes there are, oldest first, for dumps.
  std::vector<std::string_view> names() const;

 private:
  using Key = internal::AttributeKeyBase;
  using Value = std::shared_ptr<void>;  // shared with everybody who asked for it
  struct Entry {
    const Key* key;
    Value value;
  };

  Value find(const Key& key) const;
  Value exchange(const Key& key, Value value);
  Value putIfAbsent(const Key& key, Value value);

  // A vector: objects have few attributes, and most have none.
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

}  // namespace millrace
