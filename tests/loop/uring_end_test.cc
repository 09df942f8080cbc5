// SPDX-License-Identifier: Apache-2.0
// Loops on io_uring that end with everything in flight, on a thread that may not use their ring.
#include "support/engines.h"

#include <millrace/base/error.h>
#include <millrace/buffer/block.h>
#include <millrace/buffer/buffer_pool.h>
#include <millrace/buffer/byte_buf.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/fd.h>

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace millrace {
namespace {

using test::Pipe;

struct RingRow {
  const char* name;
  io::RingSizes ring;
};

class UringEnd : public testing::TestWithParam<RingRow> {
 protected:
  static constexpr int kClients = 50;

  /// Is told nothing after its loop has ended.
  struct Client final : IoClient {
    void ready(std::uint32_t) noexcept override {}
    void lost(const Error&) noexcept override {}
    void completed(const RingCompletion& completion) noexcept override {
      ++completions;
      if (completion.block != nullptr) completion.block->drop();
    }
    int completions = 0;
  };

  void SetUp() override {
    if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
    loop_ = EventLoop::handDriven(LoopOptions().io(io::uring(GetParam().ring)));
  }
  /// Sends and receives of sockets, and watches, some of which the kernel has not seen yet.
  void fill() {
    for (int i = 0; i < kClients; ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      ours_.emplace_back(ends[0]);
      peers_.emplace_back(ends[1]);
      RingIo& ring = *loop_->io().ring();
      const std::uint64_t id = ring.enter(ends[0], clients_.emplace_back());
      ASSERT_TRUE(ring.receive(id, pool_));
      ring.send(id, ByteBuf::of(std::string(4 << 20, 'x')));
      ASSERT_EQ(::send(ends[1], "something", 9, MSG_NOSIGNAL), 9);
      watches_.push_back(
          loop_->watch(pipes_.emplace_back().readEnd(), kReadable, [](int, std::uint32_t) {}));
    }
  }
  /// The loop has ended: no operation holds a socket, and no memory is kept.
  void expectNothingIsLeft(std::int64_t heapBlocks) {
    const auto told = [this] {
      int sum = 0;
      for (const Client& each : clients_) sum += each.completions;
      return sum;
    };
    const int before = told();
    ours_.clear();
    for (const Fd& peer : peers_) {
      // All that the kernel had taken, then the end: nobody else has the socket open.
      std::string text(1 << 20, '\0');
      ssize_t got = 0;
      while ((got = ::recv(peer.get(), text.data(), text.size(), 0)) > 0) {
        EXPECT_EQ(text.find_first_not_of('x'), static_cast<std::size_t>(got));
      }
    }
    EXPECT_EQ(told(), before);
    EXPECT_EQ(internal::liveHeapBlocks(), heapBlocks);
    EXPECT_EQ(pool_.figures().live, 0);
  }

  Ref<EventLoop> loop_;
  BufferPool pool_;
  std::deque<Client> clients_;
  std::deque<Pipe> pipes_;
  std::vector<Future<Watch>> watches_;
  std::vector<Fd> ours_;
  std::vector<Fd> peers_;
};

// F71: the thread that made the ring lives on, and is busy with something else
TEST_P(UringEnd, OnAnotherThreadThanItsDriver) {
  const std::int64_t blocks = internal::liveHeapBlocks();
  std::atomic<bool> driven{false};
  std::atomic<bool> over{false};
  std::thread driver([&] {
    loop_->execute([this] { fill(); });
    for (int i = 0; i < 3; ++i) loop_->runNow();
    driven = true;
    while (!over) std::this_thread::yield();
  });
  EXPECT_TRUE(test::eventually([&] { return driven.load(); }));
  watches_.clear();

  loop_ = nullptr;

  expectNothingIsLeft(blocks);
  over = true;
  driver.join();
}

// F71: it has gone, and the kernel has cancelled what it had begun
TEST_P(UringEnd, AfterItsDriver) {
  const std::int64_t blocks = internal::liveHeapBlocks();
  std::thread driver([&] {
    loop_->execute([this] { fill(); });
    for (int i = 0; i < 3; ++i) loop_->runNow();
  });
  driver.join();
  watches_.clear();

  loop_ = nullptr;

  expectNothingIsLeft(blocks);
}

// Of the thread that drove it nothing is left, and its number is another one's.
TEST(UringOwner, IsNotAThreadThatGotTheNumberOfTheOneThatHasGone) {
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  Ref<EventLoop> loop =
      EventLoop::handDriven(LoopOptions().io(io::uring({.entries = 16, .completions = 64})));
  std::deque<Pipe> pipes;
  std::vector<Future<Watch>> watches;
  std::thread::id first;
  std::thread::id second;
  std::thread([&] {
    first = std::this_thread::get_id();
    loop->execute([&] {
      for (int i = 0; i < 40; ++i) {
        watches.push_back(
            loop->watch(pipes.emplace_back().readEnd(), kReadable, [](int, std::uint32_t) {}));
      }
    });
    for (int i = 0; i < 3; ++i) loop->runNow();
  }).join();
  watches.clear();

  std::thread([&] {
    second = std::this_thread::get_id();
    loop = nullptr;  // must not use the ring: more than it has room for would be queued
  }).join();

  if (first != second) GTEST_LOG_(INFO) << "the C library gave another number: nothing was shown";
}

// The entries of a ring are shared with a child.
TEST(UringOwner, IsNotAChildOfTheProcess) {
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::uring()));
  Pipe one;
  Pipe two;
  Pipe begun;
  int calls = 0;
  Future<Watch> first;
  Future<Watch> second;
  loop->execute([&] { first = loop->watch(one.readEnd(), kReadable, [](int, std::uint32_t) {}); });
  for (int i = 0; i < 3; ++i) loop->runNow();
  pid_t child = -1;
  loop->execute([&] {
    child = ::fork();
    if (child == 0) {
      char byte = 0;
      static_cast<void>(!::read(begun.readEnd(), &byte, 1));
      first = {};
      loop = nullptr;
      ::_exit(0);
    }
    second = loop->watch(two.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
    ASSERT_EQ(::write(begun.writeEnd(), "x", 1), 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
  });
  loop->runNow();

  ASSERT_EQ(::write(two.writeEnd(), "x", 1), 1);
  const Deadline limit = Deadline::after(std::chrono::seconds(10));
  while (calls == 0 && !limit.isDue(Clock::real().nanos())) {
    loop->run(Deadline::after(std::chrono::milliseconds(10)));
  }
  EXPECT_GT(calls, 0);
}

INSTANTIATE_TEST_SUITE_P(Rings, UringEnd,
                         testing::Values(RingRow{"UsualRing", {}},
                                         RingRow{"RingWithoutRoom",
                                                 {.entries = 1, .completions = 2}}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace millrace
