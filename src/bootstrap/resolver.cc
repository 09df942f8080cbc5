// SPDX-License-Identifier: Apache-2.0
#include <millrace/bootstrap/resolver.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/sys/socket_address.h>

#include <cerrno>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <utility>

namespace millrace {

namespace {

using Addresses = std::vector<SocketAddress>;

std::string nameOf(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

Result<Addresses> ask(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* raw = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  if (failure != 0) {
    if (failure == EAI_SYSTEM) return Error::fromErrno(errno, "resolve", nameOf(host, port));
    return Error(Errc::unknownHost, "resolve",
                 nameOf(host, port) + " (" + ::gai_strerror(failure) + ")");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, &::freeaddrinfo);
  Addresses found;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    Result<SocketAddress> address = SocketAddress::fromRaw(each->ai_addr, each->ai_addrlen);
    if (address && address->isInet()) found.push_back(address->withPort(port));
  }
  if (found.empty()) {
    return Error(std::make_error_code(std::errc::host_unreachable), "resolve", nameOf(host, port));
  }
  return found;
}

Future<Addresses> resolveBy(ThreadPool& pool, const std::string& host, std::uint16_t port) {
  if (Result<SocketAddress> number = SocketAddress::ofHost(host, port)) {
    return Future<Addresses>::of(Addresses{*number});
  }
  Promise<Addresses> promise(immediateExecutor());
  Future<Addresses> future = promise.future();
  const bool taken = pool.tryExecute(
      [host, port, done = std::move(promise)] { done.tryComplete(ask(host, port)); });
  if (taken) return future;
  return Future<Addresses>::of(
      Error(Errc::rejected, "resolve", nameOf(host, port) + " (the pool of threads is full)"));
}

/// Never destroyed: a name may be asked for until the very end.
ThreadPool& sharedPool() {
  static ThreadPool& pool = *new ThreadPool(ThreadPoolOptions().threads(2).name("resolver"));
  return pool;
}

}  // namespace

Resolver systemResolver() {
  return [](const std::string& host, std::uint16_t port) {
    return resolveBy(sharedPool(), host, port);
  };
}

Resolver systemResolver(ThreadPool& pool) {
  return
      [&pool](const std::string& host, std::uint16_t port) { return resolveBy(pool, host, port); };
}

Resolver numericResolver() {
  return [](const std::string& host, std::uint16_t port) {
    const Result<SocketAddress> number = SocketAddress::ofHost(host, port);
    if (!number) return Future<Addresses>::of(number.error());
    return Future<Addresses>::of(Addresses{*number});
  };
}

}  // namespace millrace
