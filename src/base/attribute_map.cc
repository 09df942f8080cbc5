// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/attribute_map.h>

#include <algorithm>

namespace millrace {

AttributeMap::Value AttributeMap::find(const Key& key) const {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.key == &key) return entry.value;
  }
  return nullptr;
}

// What was there goes back to the caller, so that its destructor never runs under the lock.
AttributeMap::Value AttributeMap::exchange(const Key& key, Value value) {
  std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&key](const Entry& entry) { return entry.key == &key; });
  if (at == entries_.end()) {
    if (value != nullptr) entries_.push_back({&key, std::move(value)});
    return nullptr;
  }
  Value old = std::exchange(at->value, std::move(value));
  if (at->value == nullptr) entries_.erase(at);
  return old;
}

AttributeMap::Value AttributeMap::putIfAbsent(const Key& key, Value value) {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.key == &key) return entry.value;
  }
  if (value != nullptr) entries_.push_back({&key, value});
  return value;
}

void AttributeMap::clear() {
  std::vector<Entry> taken;
  const std::lock_guard<std::mutex> lock(mutex_);
  taken.swap(entries_);
}

std::size_t AttributeMap::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::vector<std::string_view> AttributeMap::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) names.push_back(entry.key->name());
  return names;
}

}  // namespace millrace
