// SPDX-License-Identifier: Apache-2.0
#include "tls/context_core.h"

#include "tls/credentials.h"
#include "tls/file_marks.h"
#include "tls/session.h"

#include <millrace/base/log.h>

#include <cstring>
#include <ctime>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

namespace millrace::tls {

namespace {

/// Tickets that a server sends after a handshake of TLS 1.3: a client that wants more comes back for them.
constexpr std::size_t kTickets = 1;

int coreIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

ContextCore& coreOf(const SSL* ssl) {
  return *static_cast<ContextCore*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), coreIndex()));
}

int useTicket(SSL* ssl, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher,
              EVP_MAC_CTX* mac, int seal) {
  const int used = coreOf(ssl).tickets().use(name, iv, cipher, mac, seal == 1);
  // A ticket of TLS 1.3 is used once: whoever shows one gets the next.
  return used == 1 && seal == 0 && SSL_version(ssl) == TLS1_3_VERSION ? 2 : used;
}

/// However often a session goes on, after so long the peers shake hands in full again.
constexpr std::time_t kLongestSession = 24 * 60 * 60;

// The first full handshake of a session is written into each of its tickets.
int markTicket(SSL* ssl, void*) {
  SSL_SESSION* session = SSL_get_session(ssl);
  void* mark = nullptr;
  std::size_t size = 0;
  if (SSL_SESSION_get0_ticket_appdata(session, &mark, &size) == 1 && size != 0) return 1;
  const std::time_t now = std::time(nullptr);
  return SSL_SESSION_set1_ticket_appdata(session, &now, sizeof now);
}

bool isStillGood(SSL_SESSION* session) {
  const X509* shown = SSL_SESSION_get0_peer(session);
  if (shown != nullptr && X509_cmp_current_time(X509_get0_notAfter(shown)) < 0) return false;
  void* mark = nullptr;
  std::size_t size = 0;
  std::time_t first = 0;
  if (SSL_SESSION_get0_ticket_appdata(session, &mark, &size) != 1 || size != sizeof first)
    return false;
  std::memcpy(&first, mark, sizeof first);
  return std::time(nullptr) - first <= kLongestSession;
}

// A client whose certificate has expired meanwhile has to show another one.
SSL_TICKET_RETURN judgeTicket(SSL*, SSL_SESSION* session, const unsigned char*, std::size_t,
                              SSL_TICKET_STATUS status, void*) {
  if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) {
    return SSL_TICKET_RETURN_IGNORE_RENEW;
  }
  if (!isStillGood(session)) return SSL_TICKET_RETURN_IGNORE_RENEW;
  return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

// A client that offers only what we do not speak would talk past us.
int chooseProtocol(SSL*, const unsigned char** out, unsigned char* outSize, const unsigned char* in,
                   unsigned int inSize, void* wanted) {
  const auto& mine = *static_cast<const std::string*>(wanted);
  unsigned char* chosen = nullptr;
  const int found =
      SSL_select_next_proto(&chosen, outSize, reinterpret_cast<const unsigned char*>(mine.data()),
                            static_cast<unsigned int>(mine.size()), in, inSize);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

int keepSession(SSL* ssl, SSL_SESSION* session) {
  const std::string* peer = peerOf(ssl);
  if (peer == nullptr) return 0;
  coreOf(ssl).sessions().put(*peer, SslSessionPtr(session));
  return 1;  // it is ours now
}

void writeSecret(const SSL* ssl, const char* line) { coreOf(ssl).keyLog().write(line); }

std::string wireForm(const std::vector<std::string>& protocols) {
  std::string wire;
  for (const std::string& each : protocols) {
    wire += static_cast<char>(each.size());
    wire += each;
  }
  return wire;
}

int numberOf(TlsVersion version) {
  return version == TlsVersion::tls12 ? TLS1_2_VERSION : TLS1_3_VERSION;
}

// Not refused: whoever connects may look at other things than names.
void warnOfOtherName(SSL_CTX* ctx, const std::string& pattern) {
  const std::string name = pattern.front() == '*' ? "any" + pattern.substr(1) : pattern;
  X509* shown = SSL_CTX_get0_certificate(ctx);
  if (X509_check_host(shown, name.data(), name.size(), 0, nullptr) == 1) return;
  log(LogLevel::warn, "tls", "the certificate for \"", pattern,
      "\" is not made out to that name: clients will refuse it");
}

}  // namespace

SSL_CTX* Snapshot::contextFor(const std::string* name) const {
  if (name == nullptr) return contexts.front().get();
  if (const std::optional<std::string> normal = normalHostName(*name)) {
    if (const std::optional<std::size_t> place = names.find(*normal)) {
      return contexts[*place].get();
    }
  }
  return settings.refuseUnknownNames ? nullptr : contexts.front().get();
}

ContextCore::ContextCore(const Settings& settings)
    : isServer_(settings.isServer), tickets_(settings.ticketLifetime.count()) {
  if (!settings.ticketKeys.empty()) tickets_.set(settings.ticketKeys);
}

Result<std::shared_ptr<ContextCore>> ContextCore::make(const Settings& settings) {
  std::shared_ptr<ContextCore> core(new ContextCore(settings));
  if (Result<void> opened = core->keyLog_.open(settings.keyLogFile); !opened) return opened.error();
  Result<std::shared_ptr<const Snapshot>> first = core->load(settings);
  if (!first) return first.error();
  core->snapshot_ = std::move(*first);
  return core;
}

std::shared_ptr<const Snapshot> ContextCore::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

Result<void> ContextCore::reload(const Settings* settings) {
  const std::lock_guard one(reloading_);
  Result<std::shared_ptr<const Snapshot>> next =
      load(settings != nullptr ? *settings : snapshot()->settings);
  if (!next) {
    count(counters.failedReloads);
    return next.error();
  }
  {
    const std::lock_guard lock(mutex_);
    snapshot_.swap(*next);
  }
  count(counters.reloads);
  return {};
}

Result<std::shared_ptr<const Snapshot>> ContextCore::load(const Settings& settings) {
  Settings kept = settings;
  wipe(kept.ticketKeys);  // the secrets are where they are used, and nowhere else
  auto snapshot = std::make_shared<Snapshot>(kept);
  snapshot->marks = marksOfFiles(settings);
  snapshot->alpn = wireForm(settings.alpn);
  Result<SslCtxPtr> first =
      loadOne(*snapshot, settings.identity ? &*settings.identity : nullptr, {});
  if (!first) return first.error();
  snapshot->contexts.push_back(std::move(*first));
  for (const Settings::Named& each : settings.named) {
    Result<SslCtxPtr> made = loadOne(*snapshot, &each.identity, each.name);
    if (!made) return made.error();
    snapshot->names.add(each.name, snapshot->contexts.size());
    snapshot->contexts.push_back(std::move(*made));
  }
  return std::shared_ptr<const Snapshot>(std::move(snapshot));
}

Result<SslCtxPtr> ContextCore::loadOne(Snapshot& snapshot, const TlsIdentity* identity,
                                       const std::string& name) {
  SslCtxPtr ctx(SSL_CTX_new(isServer_ ? TLS_server_method() : TLS_client_method()));
  if (!ctx) return credentialsError("OpenSSL", "gives no context: " + takeReason());
  SSL_CTX_set_ex_data(ctx.get(), coreIndex(), this);
  std::string believed;
  if (Result<void> good = setUp(ctx.get(), snapshot, believed); !good) return good.error();
  if (identity != nullptr) {
    if (Result<void> good = useIdentity(ctx.get(), *identity); !good) return good.error();
    if (!name.empty()) warnOfOtherName(ctx.get(), name);
  }
  setScope(ctx.get(), snapshot, name, believed);
  setUpCallbacks(ctx.get(), snapshot);
  return ctx;
}

// `believed`: what is trusted, as it was read.
Result<void> ContextCore::setUp(SSL_CTX* ctx, const Snapshot& snapshot, std::string& believed) {
  const Settings& settings = snapshot.settings;
  SSL_CTX_set_min_proto_version(ctx, numberOf(settings.oldest));
  SSL_CTX_set_max_proto_version(ctx, numberOf(settings.newest));
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // The chain is what its file says: whom we believe is nobody's business, and would hide a certificate
  // that is missing.
  SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
  ERR_clear_error();
  if (SSL_CTX_set_cipher_list(ctx, settings.ciphers12.c_str()) != 1) {
    return credentialsError("ciphers for TLS 1.2 \"" + settings.ciphers12 + "\"",
                            "are none that OpenSSL knows: " + takeReason());
  }
  if (SSL_CTX_set_ciphersuites(ctx, settings.ciphers13.c_str()) != 1) {
    return credentialsError("ciphers for TLS 1.3 \"" + settings.ciphers13 + "\"",
                            "are none that OpenSSL knows: " + takeReason());
  }
  if (SSL_CTX_set1_groups_list(ctx, settings.groups.c_str()) != 1) {
    return credentialsError("groups \"" + settings.groups + "\"",
                            "are none that OpenSSL knows: " + takeReason());
  }

  const bool verifies = isServer_ ? settings.clientAuth != TlsClientAuth::none
                                  : settings.trust->kind() != TlsTrust::Kind::insecure;
  if (settings.trust) {
    Result<std::string> text = useTrust(ctx, *settings.trust, isServer_);
    if (!text) return text.error();
    believed = std::move(*text);
  }
  int mode = SSL_VERIFY_NONE;
  if (verifies) mode = SSL_VERIFY_PEER | SSL_VERIFY_CLIENT_ONCE;
  if (isServer_ && settings.clientAuth == TlsClientAuth::required) {
    mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  SSL_CTX_set_verify(ctx, mode, nullptr);
  X509_VERIFY_PARAM* param = SSL_CTX_get0_param(ctx);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  X509_VERIFY_PARAM_set_hostflags(
      param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  return {};
}

// A session goes on only where the same name is served and the same peers are believed, and a client's
// only while it shows the same certificate.
void ContextCore::setScope(SSL_CTX* ctx, Snapshot& snapshot, const std::string& name,
                           const std::string& believed) const {
  std::string scope = name + '\n' + std::to_string(SSL_CTX_get_verify_mode(ctx)) + '\n' + believed;
  const X509* shown = isServer_ ? nullptr : SSL_CTX_get0_certificate(ctx);
  if (shown != nullptr) scope += '\n' + bytesOf(shown);
  unsigned char id[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(scope.data()), scope.size(), id);
  SSL_CTX_set_session_id_context(ctx, id, sizeof id);
  if (name.empty()) snapshot.scope.assign(reinterpret_cast<const char*>(id), sizeof id);
}

void ContextCore::setUpCallbacks(SSL_CTX* ctx, const Snapshot& snapshot) {
  const Settings& settings = snapshot.settings;
  if (keyLog_.isOpen()) SSL_CTX_set_keylog_callback(ctx, &writeSecret);
  if (isServer_) {
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);  // tickets need no memory here
    if (settings.resumption) {
      SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, &useTicket);
      SSL_CTX_set_session_ticket_cb(ctx, &markTicket, &judgeTicket, nullptr);
      SSL_CTX_set_num_tickets(ctx, kTickets);
      SSL_CTX_set_timeout(
          ctx, std::chrono::duration_cast<std::chrono::seconds>(settings.ticketLifetime).count());
    } else {
      SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
      SSL_CTX_set_num_tickets(ctx, 0);
    }
    if (!snapshot.alpn.empty()) {
      SSL_CTX_set_alpn_select_cb(ctx, &chooseProtocol, const_cast<std::string*>(&snapshot.alpn));
    }
    return;
  }
  if (settings.resumption) {
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, &keepSession);
  } else {
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
  }
  if (!snapshot.alpn.empty()) {
    SSL_CTX_set_alpn_protos(ctx, reinterpret_cast<const unsigned char*>(snapshot.alpn.data()),
                            static_cast<unsigned int>(snapshot.alpn.size()));
  }
}

}  // namespace millrace::tls
