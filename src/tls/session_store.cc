// SPDX-License-Identifier: Apache-2.0
#include "tls/session_store.h"

#include <ctime>

namespace millrace::tls {

namespace {

// OpenSSL does not look at the time of TLS 1.2's.
bool isUsable(const SSL_SESSION* session, std::string_view scope) {
  unsigned int size = 0;
  const unsigned char* id = SSL_SESSION_get0_id_context(session, &size);
  const std::string_view own(reinterpret_cast<const char*>(id), size);
  const X509* shown = SSL_SESSION_get0_peer(const_cast<SSL_SESSION*>(session));
  if (shown != nullptr && X509_cmp_current_time(X509_get0_notAfter(shown)) < 0) return false;
  const long age = static_cast<long>(std::time(nullptr)) - SSL_SESSION_get_time(session);
  return SSL_SESSION_is_resumable(session) == 1 && own == scope &&
         age <= SSL_SESSION_get_timeout(session);
}

}  // namespace

void SessionStore::put(const std::string& peer, SslSessionPtr session) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(peer); found != index_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
  } else {
    entries_.push_front({peer, {}});
    index_[peer] = entries_.begin();
    if (entries_.size() > kMostPeers) {
      index_.erase(entries_.back().peer);
      entries_.pop_back();
    }
  }
  auto& sessions = entries_.front().sessions;
  sessions.push_front(std::move(session));
  if (sessions.size() > kMostPerPeer) sessions.pop_back();
}

SslSessionPtr SessionStore::take(const std::string& peer, std::string_view scope) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(peer);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  auto& sessions = entries_.front().sessions;
  SslSessionPtr taken;
  while (!sessions.empty() && !taken) {
    SSL_SESSION* session = sessions.front().get();
    const bool isGood = isUsable(session, scope);
    // Used twice, a ticket of TLS 1.3 would let observers link the connections.
    if (isGood && SSL_SESSION_get_protocol_version(session) != TLS1_3_VERSION) {
      SSL_SESSION_up_ref(session);
      return SslSessionPtr(session);
    }
    if (isGood) taken = std::move(sessions.front());
    sessions.pop_front();
  }
  if (sessions.empty()) {
    index_.erase(peer);
    entries_.pop_front();
  }
  return taken;
}

std::size_t SessionStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace millrace::tls
