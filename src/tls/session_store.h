// SPDX-License-Identifier: Apache-2.0
// SessionStore: sessions of a client, by whom they are with, for the next connection to the same one.
//
// Threads: any. Bounded: the entry that was not used for the longest time goes first.
#pragma once

#include "tls/openssl.h"

#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace millrace::tls {

class SessionStore {
 public:
  static constexpr std::size_t kMostPeers = 1024;
  /// A server may give several; each of TLS 1.3 is used once.
  static constexpr std::size_t kMostPerPeer = 4;

  void put(const std::string& peer, SslSessionPtr session);
  /// The newest one that can still be used, or null. One of TLS 1.3 is gone then, and so are those that are
  /// too old or of another scope (see Snapshot): with other trust a server has to show itself again.
  SslSessionPtr take(const std::string& peer, std::string_view scope);
  std::size_t size() const;

 private:
  struct Entry {
    std::string peer;
    std::list<SslSessionPtr> sessions;  // newest first
  };
  using Entries = std::list<Entry>;  // last used first

  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> index_;
};

}  // namespace millrace::tls
