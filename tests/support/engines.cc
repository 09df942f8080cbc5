// SPDX-License-Identifier: Apache-2.0
#include "support/engines.h"

#include <millrace/base/error.h>

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace millrace::test {

std::vector<Engine> selectorEngines() {
  return {{"Epoll", io::epoll()},
          {"EpollWithOneEvent", io::epoll({.initial = 1, .grows = false})},
          {"Poll", io::poll(), false}};
}

std::vector<Engine> readinessEngines() {
  std::vector<Engine> all = selectorEngines();
  if (ioSupport().uring) all.push_back({"Uring", io::uring()});
  return all;
}

std::vector<Engine> everyEngine() {
  std::vector<Engine> all = readinessEngines();
  all.push_back({"Parking", io::parking(), false});
  return all;
}

std::string engineName(const testing::TestParamInfo<Engine>& info) { return info.param.name; }

Ref<EventLoop> EngineTest::handDriven(const LoopOptions& options) const {
  Ref<EventLoop> loop = EventLoop::handDriven(options);
  EXPECT_EQ(&loop->ioType(), GetParam().io.type);
  return loop;
}

void EngineTest::expectEngine(const EventLoopGroup& group) const {
  for (const EventLoop& loop : group) EXPECT_EQ(&loop.ioType(), GetParam().io.type);
}

Pipe::Pipe() {
  if (::pipe2(ends_, O_NONBLOCK | O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
}
Pipe::Pipe(Pipe&& other) noexcept
    : ends_{std::exchange(other.ends_[0], -1), std::exchange(other.ends_[1], -1)} {}
Pipe::~Pipe() {
  closeRead();
  closeWrite();
}
void Pipe::closeRead() {
  if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
}
void Pipe::closeWrite() {
  if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
}
void Pipe::put(std::string_view bytes) const {
  if (::write(ends_[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("write");
  }
}
std::string Pipe::take() const { return readAll(ends_[0]); }

std::string readAll(int fd) {
  std::string all;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got > 0) {
      all.append(part, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return all;
    }
  }
}

std::int64_t voluntarySwitches(std::int64_t threadId) {
  std::ifstream status("/proc/self/task/" + std::to_string(threadId) + "/status");
  std::string word;
  std::int64_t count = -1;
  while (status >> word) {
    if (word == "voluntary_ctxt_switches:") status >> count;
  }
  return count;
}

Watch watchInLoop(EventLoop& loop, int fd, std::uint32_t events, WatchCallback callback,
                  Trigger trigger, WatchEnd onEnd) {
  Future<Watch> begun = loop.watch(fd, events, std::move(callback), trigger, std::move(onEnd));
  // Loops without a group are driven by hand, here.
  while (loop.parent() == nullptr && !begun.isDone()) loop.runNow();
  begun.await();
  EXPECT_TRUE(begun.isSuccess()) << begun.cause().message();
  return begun.isSuccess() ? begun.get() : Watch();
}

}  // namespace millrace::test
