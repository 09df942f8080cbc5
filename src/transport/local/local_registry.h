// SPDX-License-Identifier: Apache-2.0
// LocalRegistry: who listens on which in-process address. One per process; any thread.
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/sys/socket_address.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace {

class LocalRegistry final {
 public:
  /// Never destroyed: channels may close until the very end.
  static LocalRegistry& get() {
    static LocalRegistry& registry = *new LocalRegistry;
    return registry;
  }

  /// False if somebody listens there.
  bool add(const SocketAddress& address, ChannelPtr server) {
    std::lock_guard lock(mutex_);
    return servers_.emplace(address, std::move(server)).second;
  }
  void remove(const SocketAddress& address) {
    ChannelPtr gone;  // dropped without the lock
    std::lock_guard lock(mutex_);
    const auto found = servers_.find(address);
    if (found == servers_.end()) return;
    gone = std::move(found->second);
    servers_.erase(found);
  }
  ChannelPtr find(const SocketAddress& address) const {
    std::lock_guard lock(mutex_);
    const auto found = servers_.find(address);
    return found == servers_.end() ? ChannelPtr() : found->second;
  }
  /// One that nobody has.
  SocketAddress anyAddress() {
    std::lock_guard lock(mutex_);
    return SocketAddress::local("#" + std::to_string(++last_));
  }

 private:
  LocalRegistry() = default;

  mutable std::mutex mutex_;
  std::unordered_map<SocketAddress, ChannelPtr> servers_;  // guarded by mutex_
  std::uint64_t last_ = 0;                                 // guarded by mutex_
};

}  // namespace millrace
