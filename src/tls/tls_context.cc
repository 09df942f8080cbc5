// SPDX-License-Identifier: Apache-2.0
#include "tls/context_core.h"

#include <millrace/tls/tls_context.h>

#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

void require(bool condition, const std::string& text) {
  if (!condition) throw std::invalid_argument("TlsContextBuilder::" + text);
}

void checkSecrets(const std::vector<std::string>& secrets) {
  if (secrets.empty()) throw std::invalid_argument("ticketKeys() needs at least one secret");
  for (const std::string& each : secrets) {
    if (each.size() != tls::TicketKeys::kSecretBytes) {
      throw std::invalid_argument("a ticket key has 80 random bytes, not " +
                                  std::to_string(each.size()));
    }
  }
}

/// What only shows when everything is there.
void checkTogether(const tls::Settings& settings) {
  if (settings.clientAuth == TlsClientAuth::none) {
    require(!settings.isServer || !settings.trust.has_value(),
            "trust() of a server needs clientAuth(): as it is, nobody is asked for a certificate");
    return;
  }
  require(settings.trust.has_value(),
          "clientAuth() needs trust(): whose certificates are believed?");
  require(settings.trust->kind() != TlsTrust::Kind::insecure,
          "clientAuth() does not go with TlsTrust::insecure(): a certificate that nobody checks "
          "proves nothing");
}

}  // namespace

// --- TlsContextBuilder ---

TlsContextBuilder::TlsContextBuilder(bool isServer)
    : settings_(std::make_unique<tls::Settings>(isServer)) {}
TlsContextBuilder::TlsContextBuilder(const TlsContextBuilder& other)
    : settings_(std::make_unique<tls::Settings>(*other.settings_)) {}
TlsContextBuilder& TlsContextBuilder::operator=(const TlsContextBuilder& other) {
  if (this != &other) settings_ = std::make_unique<tls::Settings>(*other.settings_);
  return *this;
}
TlsContextBuilder::~TlsContextBuilder() = default;

TlsContextBuilder TlsContextBuilder::forServer(TlsIdentity identity) {
  TlsContextBuilder builder(true);
  builder.settings_->identity = std::move(identity);
  return builder;
}

TlsContextBuilder TlsContextBuilder::forClient() {
  TlsContextBuilder builder(false);
  builder.settings_->trust = TlsTrust::system();
  return builder;
}

TlsContextBuilder& TlsContextBuilder::identity(std::string name, TlsIdentity identity) {
  require(settings_->isServer, "identity(name, …): only servers are asked for names");
  std::optional<std::string> normal = tls::normalPattern(name);
  require(normal.has_value(),
          "identity(): \"" + name + "\" is no host name, and no \"*.\" before one");
  for (const tls::Settings::Named& each : settings_->named) {
    require(each.name != *normal, "identity(): \"" + name + "\" has one already");
  }
  settings_->named.push_back({std::move(*normal), std::move(identity)});
  return *this;
}

TlsContextBuilder& TlsContextBuilder::identity(TlsIdentity identity) {
  require(!settings_->isServer,
          "identity(…) without a name is for clients; a server's own is that of forServer()");
  settings_->identity = std::move(identity);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::refuseUnknownNames(bool on) {
  require(settings_->isServer, "refuseUnknownNames() is for servers");
  settings_->refuseUnknownNames = on;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::trust(TlsTrust trust) {
  settings_->trust = std::move(trust);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::clientAuth(TlsClientAuth wanted) {
  require(settings_->isServer, "clientAuth() is for servers");
  settings_->clientAuth = wanted;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::alpn(std::vector<std::string> protocols) {
  for (const std::string& each : protocols) {
    require(!each.empty() && each.size() <= 255,
            "alpn(): a protocol has 1 to 255 bytes, not " + std::to_string(each.size()));
  }
  settings_->alpn = std::move(protocols);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::versions(TlsVersion oldest, TlsVersion newest) {
  require(oldest <= newest, "versions(): the oldest is newer than the newest");
  settings_->oldest = oldest;
  settings_->newest = newest;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::ciphers(std::string tls12, std::string tls13) {
  if (!tls12.empty()) settings_->ciphers12 = std::move(tls12);
  if (!tls13.empty()) settings_->ciphers13 = std::move(tls13);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::groups(std::string list) {
  settings_->groups = std::move(list);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::handshakeTimeout(Duration limit) {
  require(limit.count() > 0, "handshakeTimeout() must be longer than nothing");
  settings_->handshakeTimeout = limit;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::closeTimeout(Duration limit) {
  require(limit.count() >= 0, "closeTimeout() must not be negative");
  settings_->closeTimeout = limit;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::handshakesPerTurn(int most) {
  require(most > 0, "handshakesPerTurn() must be 1 or more, not " + std::to_string(most));
  settings_->handshakesPerTurn = most;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::offloadHandshakes(ThreadPool& pool) {
  settings_->pool = &pool;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::maxClientHello(std::size_t bytes) {
  require(bytes >= 512 && bytes <= 128 * 1024,
          "maxClientHello() is 512 bytes to 128 KiB, not " + std::to_string(bytes));
  settings_->maxClientHello = bytes;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::resumption(bool on) {
  settings_->resumption = on;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::ticketLifetime(Duration life) {
  require(life >= std::chrono::seconds(1) && life <= std::chrono::hours(7 * 24),
          "ticketLifetime() is a second to seven days");
  settings_->ticketLifetime = life;
  return *this;
}

TlsContextBuilder& TlsContextBuilder::ticketKeys(std::vector<std::string> secrets) {
  require(settings_->isServer, "ticketKeys() is for servers: a client keeps what it is given");
  checkSecrets(secrets);
  settings_->ticketKeys = std::move(secrets);
  return *this;
}

TlsContextBuilder& TlsContextBuilder::keyLogFile(std::string path) {
  settings_->keyLogFile = std::move(path);
  return *this;
}

TlsContext TlsContextBuilder::build() const { return tryBuild().orThrow(); }

Result<TlsContext> TlsContextBuilder::tryBuild() const {
  checkTogether(*settings_);
  Result<std::shared_ptr<tls::ContextCore>> core = tls::ContextCore::make(*settings_);
  if (!core) return core.error();
  return TlsContext(std::move(*core));
}

// --- TlsContext ---

bool TlsContext::isServer() const noexcept { return core_->isServer(); }

Result<void> TlsContext::reload() { return core_->reload(nullptr); }

Result<void> TlsContext::reload(const TlsContextBuilder& settings) {
  if (settings.settings_->isServer != isServer()) {
    return Error(Errc::notSupported, "TlsContext::reload()",
                 "a server's context cannot become a client's, nor the other way round");
  }
  checkTogether(*settings.settings_);
  return core_->reload(settings.settings_.get());
}

void TlsContext::setTicketKeys(std::vector<std::string> secrets) {
  if (!isServer()) throw std::invalid_argument("setTicketKeys() is for servers");
  checkSecrets(secrets);
  core_->tickets().set(secrets);
  tls::wipe(secrets);
}

TlsFigures TlsContext::figures() const noexcept {
  const auto read = [](const Atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const tls::ContextCore::Counters& counters = core_->counters;
  TlsFigures figures;
  figures.handshakes = read(counters.handshakes);
  figures.resumed = read(counters.resumed);
  figures.failed = read(counters.failed);
  figures.timedOut = read(counters.timedOut);
  figures.delayed = read(counters.delayed);
  figures.reloads = read(counters.reloads);
  figures.failedReloads = read(counters.failedReloads);
  return figures;
}

}  // namespace millrace
