// SPDX-License-Identifier: Apache-2.0
// TlsContext: everything that connections of one kind have in common: certificates, trust, limits.
//
//   TlsContext server = TlsContextBuilder::forServer(TlsIdentity::fromFiles("chain.pem", "key.pem"))
//                           .identity("*.example.org", TlsIdentity::fromFiles("org.pem", "org.key"))
//                           .alpn({"h2", "http/1.1"})
//                           .build();                        // throws, and names the file that is wrong
//   pipeline.emplaceLast<TlsHandler>(server);
//   server.reload();                                         // new connections get the new certificate
//
//   TlsContext client = TlsContextBuilder::forClient().build();   // trusts what the system trusts
//   pipeline.emplaceLast<TlsHandler>(client, "example.org");      // and insists on this name
//
// TLS 1.2 and 1.3, forward secrecy and authenticated ciphers only, no renegotiation, no early data.
//
// Threads: any. Ownership: copies share one context; connections keep what they began with.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/tls/tls_identity.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

class EventLoop;
class ThreadPool;
class TlsContext;
namespace tls {
class ContextCore;
struct Settings;
}  // namespace tls

enum class TlsVersion { tls12, tls13 };

/// Whether clients have to show a certificate.
enum class TlsClientAuth { none, optional, required };

/// What a context has seen so far. Counts of one moment need not fit together.
struct TlsFigures {
  std::uint64_t handshakes = 0;  ///< that went well
  std::uint64_t resumed = 0;     ///< of those, how many went on with an earlier session
  std::uint64_t failed = 0;      ///< that did not, timed out ones included
  std::uint64_t timedOut = 0;
  std::uint64_t delayed = 0;  ///< waited for a later turn; see handshakesPerTurn()
  std::uint64_t reloads = 0;
  std::uint64_t failedReloads = 0;
};

/// Collects settings. Copies are independent. Wrong values throw std::invalid_argument at once, values that do not go
/// together do so in build().
class MILLRACE_API TlsContextBuilder {
 public:
  /// `identity` is shown to clients that ask for no name, or for one that nobody has.
  static TlsContextBuilder forServer(TlsIdentity identity);
  static TlsContextBuilder forClient();
  TlsContextBuilder(const TlsContextBuilder& other);
  TlsContextBuilder& operator=(const TlsContextBuilder& other);
  ~TlsContextBuilder();

  /// Servers: for clients that ask for `name` (SNI): "example.org", or "*.example.org" for any one label.
  /// A certificate for another name is taken, with a warning.
  TlsContextBuilder& identity(std::string name, TlsIdentity identity);
  /// Clients: what we show to servers that ask for a certificate.
  TlsContextBuilder& identity(TlsIdentity identity);
  /// Servers: a client that asks for a name that nobody has is refused instead of getting the default.
  TlsContextBuilder& refuseUnknownNames(bool on = true);
  /// Whose certificates are believed: of servers for clients, of clients for servers, with clientAuth() only.
  TlsContextBuilder& trust(TlsTrust trust);
  /// Servers: default none. The others need trust(), and not TlsTrust::insecure(). A certificate that is not
  /// believed is refused by `optional`, too.
  TlsContextBuilder& clientAuth(TlsClientAuth wanted);

  /// Application protocols, best first, such as {"h2", "http/1.1"}. A server refuses clients that offer
  /// none of them; those that offer nothing at all go on without.
  TlsContextBuilder& alpn(std::vector<std::string> protocols);
  /// Default 1.2 to 1.3.
  TlsContextBuilder& versions(TlsVersion oldest, TlsVersion newest);
  /// OpenSSL's notation; empty: ours.
  TlsContextBuilder& ciphers(std::string tls12, std::string tls13);
  /// Key exchange groups, best first, OpenSSL's notation: "X25519:P-256".
  TlsContextBuilder& groups(std::string list);

  /// How long a handshake may take, the wait for the peer's first bytes included. Default 10 s.
  TlsContextBuilder& handshakeTimeout(Duration limit);
  /// How long close() waits until what was flushed is sent and the peer has said close_notify, too. Default
  /// 3 s; zero: it does not wait.
  TlsContextBuilder& closeTimeout(Duration limit);
  /// New handshakes that a loop begins per turn, so that a storm of them does not stop everybody else.
  /// Default 1, which costs nothing when the loop has nothing else to do. With offloadHandshakes() it has
  /// no meaning.
  TlsContextBuilder& handshakesPerTurn(int most);
  /// The work of handshakes is done on `pool`, which must outlive the connections; what it refuses is done on
  /// the loop. Default: on the loop.
  TlsContextBuilder& offloadHandshakes(ThreadPool& pool);
  /// The longest ClientHello, in bytes as they come. Default 64 KiB.
  TlsContextBuilder& maxClientHello(std::size_t bytes);

  /// Sessions that go on later, with less work: by tickets (servers), by a store (clients). Default on.
  TlsContextBuilder& resumption(bool on);
  /// How long a ticket is good; its key changes as often. Default 2 h.
  TlsContextBuilder& ticketLifetime(Duration life);
  /// Servers that share their tickets: secrets of 80 random bytes, the first one for new tickets. They do not
  /// change by themselves; see TlsContext::setTicketKeys(). Throws std::invalid_argument for clients.
  TlsContextBuilder& ticketKeys(std::vector<std::string> secrets);

  /// For debugging: secrets are appended to this file, for Wireshark. Whoever has it can read everything.
  /// Opened by build(), and not changed by a reload.
  TlsContextBuilder& keyLogFile(std::string path);

  /// Reads the files. Throws Exception (TlsErrc::credentials) with the file and what is wrong with it, also for ciphers
  /// and groups that OpenSSL does not know.
  TlsContext build() const;
  /// The same with that error as a value. Settings that do not go together still throw std::invalid_argument.
  Result<TlsContext> tryBuild() const;

 private:
  friend class TlsContext;
  explicit TlsContextBuilder(bool isServer);
  std::unique_ptr<tls::Settings> settings_;
};

/// Ends the watch when it goes; see TlsContext::watchFiles(). Move-only.
class MILLRACE_API TlsFileWatch {
 public:
  struct State;
  TlsFileWatch() noexcept;
  explicit TlsFileWatch(std::shared_ptr<State> state) noexcept;
  TlsFileWatch(TlsFileWatch&& other) noexcept;
  TlsFileWatch& operator=(TlsFileWatch&& other) noexcept;
  ~TlsFileWatch();
  /// No reload begins after this, but for one that is just going on. Any thread.
  void stop() noexcept;

 private:
  std::shared_ptr<State> state_;  // shared with its timer
};

/// See the top of this file.
class MILLRACE_API TlsContext {
 public:
  bool isServer() const noexcept;

  /// Reads all files again. If that fails everything stays as it is, and the error says why. Connections
  /// keep what they have; tickets stay good.
  Result<void> reload();
  /// The same with other settings. Only the counters, the ticket keys (and how often they change), the store
  /// of sessions and the key log stay. Fails with Errc::notSupported if it would make a server of a client,
  /// or the other way round; throws std::invalid_argument where build() does.
  Result<void> reload(const TlsContextBuilder& settings);
  /// Looks every so often on `loop` whether a file has changed, and reloads, on its thread. A failure is
  /// logged once, and tried again with every look. What the system trusts is not looked at. Goes on
  /// until the handle goes, or the loop ends.
  [[nodiscard]] TlsFileWatch watchFiles(EventLoop& loop, Duration every = std::chrono::seconds(5));
  /// See TlsContextBuilder::ticketKeys(). Throws std::invalid_argument.
  void setTicketKeys(std::vector<std::string> secrets);

  TlsFigures figures() const noexcept;

  /// For the library.
  tls::ContextCore& core() const noexcept { return *core_; }

 private:
  friend class TlsContextBuilder;
  explicit TlsContext(std::shared_ptr<tls::ContextCore> core) noexcept : core_(std::move(core)) {}
  std::shared_ptr<tls::ContextCore> core_;  // shared by copies and connections
};

}  // namespace millrace
