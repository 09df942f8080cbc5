// SPDX-License-Identifier: Apache-2.0
// Resolver: from a host name to addresses. Numbers are read at once, names asked on another thread.
#pragma once

#include <millrace/base/export.h>
#include <millrace/concurrent/future.h>
#include <millrace/sys/socket_address.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace {

class ThreadPool;

/// Gives at least one address, or fails. Called on any thread; the future may complete on any.
using Resolver =
    std::function<Future<std::vector<SocketAddress>>(const std::string& host, std::uint16_t port)>;

/// Reads numeric addresses and asks getaddrinfo(3) for names, on a small pool of threads that all
/// share. The default.
MILLRACE_API Resolver systemResolver();
/// The same on a pool of your own, which must outlive the resolver.
MILLRACE_API Resolver systemResolver(ThreadPool& pool);
/// Numeric addresses only; names fail.
MILLRACE_API Resolver numericResolver();

}  // namespace millrace
