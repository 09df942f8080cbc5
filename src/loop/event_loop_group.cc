// SPDX-License-Identifier: Apache-2.0
#include "concurrent/shutdown_periods.h"
#include "loop/group_core.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_source.h>

#include <mutex>
#include <stdexcept>

namespace millrace {

EventLoopGroup::EventLoopGroup(int loops) : EventLoopGroup(LoopOptions().loops(loops)) {}

EventLoopGroup::EventLoopGroup(int loops, IoFactory io)
    : EventLoopGroup(LoopOptions().loops(loops).io(std::move(io))) {}

EventLoopGroup::EventLoopGroup(const LoopOptions& options)
    : core_(std::make_shared<Core>(options)) {
  core_->makeAll(this);
}

EventLoopGroup::~EventLoopGroup() {
  const bool forked = core_->isForked();
  if (!forked) {
    core_->tellListeners();
    std::lock_guard lock(core_->mutex);
    core_->handle = nullptr;
  }
  for (const Ref<EventLoop>& loop : core_->children) {
    // Who has asked for it before has said how long it may take.
    if (!loop->isShuttingDown()) static_cast<void>(loop->shutdownGracefully());
    loop->parts_->group.store(nullptr, std::memory_order_release);
  }
  if (!forked) core_->endIfEmpty();
  // Waiting inside a loop's turn could wait for ourselves. The threads end on their own; each loop
  // lives until then.
  if (!core_->mayWait()) return;
  bool all = true;
  for (const Ref<EventLoop>& loop : core_->children) {
    const Duration patience(
        saturatingAdd(loop->parts_->timeoutNanos.load(std::memory_order_relaxed), 1'000'000'000));
    if (loop->terminationFuture().await(Deadline::after(patience))) {
      loop->parts_->joinThread();
      continue;
    }
    all = false;
    log(LogLevel::error, "loop", "group ", core_->name,
        " is destroyed, but a loop does not end and is left behind: ", loop->dump());
  }
  if (all) {
    core_->terminatedFuture.await();
  } else if (core_->watchdog) {
    core_->watchdog->stop();
  }
}

EventLoop& EventLoopGroup::next() { return core_->next(); }

Executor& EventLoopGroup::forPromise() noexcept {
  return core_->onDemand ? globalExecutor() : core_->next();
}

Ref<EventLoop> EventLoopGroup::acquireLoop() {
  Result<Ref<EventLoop>> loop = core_->acquire();
  if (!loop) throw RejectedExecution(loop.error().message());
  return std::move(*loop);
}

std::shared_ptr<LoopSource> EventLoopGroup::source() const { return core_; }

bool EventLoopGroup::inEventLoop() const noexcept {
  for (const Ref<EventLoop>& loop : core_->children) {
    if (loop->inEventLoop()) return true;
  }
  return false;
}

std::size_t EventLoopGroup::load() const noexcept {
  std::size_t sum = 0;
  for (const Ref<EventLoop>& loop : core_->children) sum += loop->load();
  return sum;
}

EventLoopGroup::Iterator EventLoopGroup::begin() const noexcept {
  return Iterator(core_->children.begin());
}
EventLoopGroup::Iterator EventLoopGroup::end() const noexcept {
  return Iterator(core_->children.end());
}
std::size_t EventLoopGroup::size() const noexcept { return core_->children.size(); }

namespace {

template <class Loops, class Question>
bool allOf(const Loops& loops, Question question) noexcept {
  for (const auto& loop : loops) {
    if (!question(*loop)) return false;
  }
  return true;
}

}  // namespace

bool EventLoopGroup::isShuttingDown() const noexcept {
  if (core_->onDemand && !core_->told.load(std::memory_order_acquire)) return false;
  return allOf(core_->children, [](const EventLoop& loop) { return loop.isShuttingDown(); });
}
bool EventLoopGroup::isShutdown() const noexcept {
  if (core_->onDemand && !core_->told.load(std::memory_order_acquire)) return false;
  return allOf(core_->children, [](const EventLoop& loop) { return loop.isShutdown(); });
}
bool EventLoopGroup::isTerminated() const noexcept {
  if (core_->onDemand && !core_->told.load(std::memory_order_acquire)) return false;
  return allOf(core_->children, [](const EventLoop& loop) { return loop.isTerminated(); });
}

std::uint64_t EventLoopGroup::addShutdownListener(Task listener) {
  return core_->addShutdownListener(std::move(listener));
}
bool EventLoopGroup::removeShutdownListener(std::uint64_t id) {
  return core_->removeShutdownListener(id);
}

Future<ShutdownReport> EventLoopGroup::shutdownGracefully(Duration quiet, Duration timeout) {
  checkPeriods(quiet, timeout);
  const bool forked = core_->isForked();
  if (!forked) core_->tellListeners();
  for (const Ref<EventLoop>& loop : core_->children) {
    static_cast<void>(loop->shutdownGracefully(quiet, timeout));
  }
  if (!forked) core_->endIfEmpty();
  return terminationFuture();
}

Future<ShutdownReport> EventLoopGroup::terminationFuture() const { return core_->terminatedFuture; }

LoopMetrics EventLoopGroup::metrics() const {
  LoopMetrics sum;
  for (const Ref<EventLoop>& loop : core_->children) sum += loop->metrics();
  return sum;
}

std::string EventLoopGroup::dump() const {
  std::string text = "group " + core_->name + ": " + std::to_string(core_->children.size()) +
                     " loops, " + std::to_string(core_->children.size() - endedLoops()) +
                     " keep it from ending\n";
  for (const Ref<EventLoop>& loop : core_->children) text += loop->dump();
  return text;
}

std::size_t EventLoopGroup::endedLoops() const noexcept {
  std::size_t ended = 0;
  for (const Ref<EventLoop>& loop : core_->children) ended += loop->isTerminated() ? 1 : 0;
  return ended;
}

const std::string& EventLoopGroup::name() const noexcept { return core_->name; }

}  // namespace millrace
