// SPDX-License-Identifier: Apache-2.0
// ContextCore: what is behind a TlsContext. It holds a snapshot, which never changes and which connections
// keep, and what outlives snapshots: ticket keys, sessions of clients, counters.
//
//   reload():  files ──> a whole new Snapshot ──(if everything is right)──> takes the place of the old one
//
// Threads: any.
#pragma once

#include "tls/host_names.h"
#include "tls/key_log.h"
#include "tls/openssl.h"
#include "tls/session_store.h"
#include "tls/settings.h"
#include "tls/ticket_keys.h"

#include <millrace/base/atomic.h>
#include <millrace/base/result.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace millrace::tls {

class ContextCore;

/// Settings and what was read for them, at one moment.
struct Snapshot {
  explicit Snapshot(const Settings& wanted) : settings(wanted) {}

  const Settings settings;
  std::string marks;                // of the files before they were read
  std::string alpn;                 // as it goes over the wire
  std::vector<SslCtxPtr> contexts;  // the default one first
  HostNames names;                  // to places in `contexts`
  std::string scope;                // of a client's sessions: they go on where it is the same

  /// The context for this name as a client sent it; null if it is refused.
  SSL_CTX* contextFor(const std::string* name) const;
};

class ContextCore {
 public:
  static Result<std::shared_ptr<ContextCore>> make(const Settings& settings);

  std::shared_ptr<const Snapshot> snapshot() const;
  /// Null: with the settings of now, whatever another thread makes of them meanwhile.
  Result<void> reload(const Settings* settings);
  bool isServer() const noexcept { return isServer_; }

  TicketKeys& tickets() noexcept { return tickets_; }
  SessionStore& sessions() noexcept { return sessions_; }
  KeyLog& keyLog() noexcept { return keyLog_; }

  struct Counters {
    Atomic<std::uint64_t> handshakes{0};
    Atomic<std::uint64_t> resumed{0};
    Atomic<std::uint64_t> failed{0};
    Atomic<std::uint64_t> timedOut{0};
    Atomic<std::uint64_t> delayed{0};
    Atomic<std::uint64_t> reloads{0};
    Atomic<std::uint64_t> failedReloads{0};
  };
  Counters counters;
  static void count(Atomic<std::uint64_t>& counter) noexcept {
    counter.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  explicit ContextCore(const Settings& settings);
  Result<std::shared_ptr<const Snapshot>> load(const Settings& settings);
  Result<SslCtxPtr> loadOne(Snapshot& snapshot, const TlsIdentity* identity,
                            const std::string& name);
  Result<void> setUp(SSL_CTX* ctx, const Snapshot& snapshot, std::string& believed);
  void setScope(SSL_CTX* ctx, Snapshot& snapshot, const std::string& name,
                const std::string& believed) const;
  void setUpCallbacks(SSL_CTX* ctx, const Snapshot& snapshot);

  const bool isServer_;
  TicketKeys tickets_;
  SessionStore sessions_;
  KeyLog keyLog_;
  std::mutex reloading_;  // one at a time
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_;  // guarded by mutex_; shared with connections
};

}  // namespace millrace::tls
