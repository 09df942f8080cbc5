// SPDX-License-Identifier: Apache-2.0
// What tests of a loop on io_uring share: the loop, driven by hand, and clients of its ring.
#pragma once

#include "support/engines.h"

#include <millrace/base/error.h>
#include <millrace/buffer/block.h>
#include <millrace/buffer/buffer_pool.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/fd.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>
#include <vector>

namespace millrace::test {

class UringEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  }
  ~UringEngineTest() override { end(); }

  void begin(io::RingSizes sizes = {}) {
    loop_ = EventLoop::handDriven(LoopOptions().io(io::uring(sizes)));
    ASSERT_EQ(&loop_->ioType(), &io::uringType);
    loop_->runNow();  // the ring is made by the thread that drives it
    ASSERT_NE(loop_->io().ring(), nullptr);
  }
  void end() {
    if (!loop_) return;
    loop_->shutdownGracefully();
    while (!loop_->isTerminated()) loop_->run(Deadline::never());
    loop_ = nullptr;
  }
  RingIo& ring() { return *loop_->io().ring(); }
  template <class Q>
  bool turnUntil(Q&& question) {
    return turnLoopUntil(*loop_, question);
  }
  void turn(int count = 20) { turnLoop(*loop_, count); }

  Ref<EventLoop> loop_;
};

/// Writes down what becomes of its operations.
struct RingClient final : IoClient {
  void ready(std::uint32_t) noexcept override {}
  void lost(const Error&) noexcept override {}
  void completed(const RingCompletion& completion) noexcept override {
    results.push_back(completion.result);
    if (onCompleted) onCompleted();
    lasts += completion.last ? 1 : 0;
    if (completion.block == nullptr) return;
    text.append(reinterpret_cast<const char*>(completion.block->bytes),
                static_cast<std::size_t>(completion.result));
    completion.block->drop();
  }
  std::function<void()> onCompleted;
  std::vector<int> results;
  std::string text;
  int lasts = 0;
};

class UringOperationsTest : public UringEngineTest {
 protected:
  struct Pair {
    Fd ours;
    Fd peer;
  };
  static Pair pairOf() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return {Fd(ends[0]), Fd(ends[1])};
  }
  /// Over TCP, with little room on the way.
  static Pair tcpPair() {
    constexpr int kLittle = 16 << 10;
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener.get(), raw, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), raw, &size), 0);
    Fd ours(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &kLittle, sizeof kLittle), 0);
    EXPECT_EQ(::connect(ours.get(), raw, size), 0);
    Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const timeval patience{20, 0};  // then a test fails, and does not hang
    EXPECT_EQ(::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    return {std::move(ours), std::move(peer)};
  }
  static void put(const Fd& peer, std::string_view text) {
    ASSERT_EQ(::send(peer.get(), text.data(), text.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(text.size()));
  }
  static std::string take(const Fd& peer) {
    std::string text(1 << 20, '\0');
    const ssize_t got = ::recv(peer.get(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }

  BufferPool pool_;
};

}  // namespace millrace::test
