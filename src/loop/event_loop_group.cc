// SPDX-License-Identifier: Apache-2.0
#include "loop/end_executor.h"
#include "loop/event_loop_parts.h"
#include "loop/watchdog.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>

#include <mutex>
#include <stdexcept>

namespace millrace {

namespace {

Atomic<int> nextGroupNumber{1};

}  // namespace

struct EventLoopGroup::Core {
  std::string name;
  std::vector<Ref<EventLoop>> loops;
  std::unique_ptr<Chooser> chooser;
  std::shared_ptr<Watchdog> watchdog;  // shared with the loops; null: none
  Ref<EndExecutor> endExecutor = makeRef<EndExecutor>();
  Promise<ShutdownReport> terminated{*endExecutor};
  Future<ShutdownReport> terminatedFuture = terminated.future();
  std::mutex mutex;
  std::size_t left = 0;   // guarded by mutex: loops that have not ended
  ShutdownReport report;  // guarded by mutex
  Error failure;          // guarded by mutex

  // The group cannot be made. Its loops have not started and end here and now, unless a factory of
  // the user's has given them work.
  void endLoops() {
    for (const Ref<EventLoop>& loop : loops) {
      loop->parts_->group.store(nullptr, std::memory_order_release);
      Future<ShutdownReport> end = loop->shutdownGracefully();
      if (globalExecutor().inEventLoop()) continue;
      end.await();
      loop->parts_->joinThread();
    }
  }

  void oneEnded(const Result<ShutdownReport>& result) {
    bool last = false;
    {
      std::lock_guard lock(mutex);
      if (result.ok()) {
        report += result.value();
      } else if (!failure) {
        failure = result.error();
      }
      last = --left == 0;
    }
    if (!last) return;
    if (failure) {
      terminated.tryFailure(failure);
    } else {
      terminated.trySuccess(report);
    }
  }
};

EventLoopGroup::EventLoopGroup(int loops) : EventLoopGroup(LoopOptions().loops(loops)) {}

EventLoopGroup::EventLoopGroup(int loops, IoFactory io)
    : EventLoopGroup(LoopOptions().loops(loops).io(std::move(io))) {}

EventLoopGroup::EventLoopGroup(const LoopOptions& options) : core_(std::make_shared<Core>()) {
  const LoopOptions::Values& values = options.values();
  const int number = nextGroupNumber.fetch_add(1, std::memory_order_relaxed);
  core_->name = values.name.empty() ? std::to_string(number) : values.name;
  const int count = values.loops == 0 ? defaultLoopCount() : values.loops;
  if (values.watchdog.count() != 0) {
    core_->watchdog = std::make_shared<Watchdog>(core_->name, values.watchdog);
  }
  try {
    core_->loops.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      std::string title = "mr-" + core_->name + "-" + std::to_string(i + 1);
      core_->loops.emplace_back(new EventLoop(options, std::move(title), i, false));
      core_->endExecutor->refuseWaitingOn(*core_->loops.back());
      core_->loops.back()->parts_->watchdog = core_->watchdog;
      core_->loops.back()->parts_->group.store(this, std::memory_order_release);
    }
  } catch (const Exception& e) {
    core_->endLoops();
    throw Exception(Error(e.error().code(), "EventLoopGroup " + core_->name,
                          "(making loop " + std::to_string(core_->loops.size() + 1) + " of " +
                              std::to_string(count) + ": " + e.error().message() + ")"));
  } catch (...) {
    core_->endLoops();
    throw;
  }
  core_->left = core_->loops.size();
  for (const Ref<EventLoop>& loop : core_->loops) {
    loop->parts_->onTerminated = [core = core_](const Result<ShutdownReport>& result) {
      core->oneEnded(result);
    };
  }
  try {
    std::vector<EventExecutor*> children;
    for (const Ref<EventLoop>& loop : core_->loops) children.push_back(loop.get());
    core_->chooser = values.chooser(children);
    if (!core_->chooser) throw std::invalid_argument("chooser(): the factory gave nothing");
  } catch (...) {
    core_->endLoops();
    throw;
  }
}

EventLoopGroup::~EventLoopGroup() {
  for (const Ref<EventLoop>& loop : core_->loops) {
    // Who has asked for it before has said how long it may take.
    if (!loop->isShuttingDown()) static_cast<void>(loop->shutdownGracefully());
    loop->parts_->group.store(nullptr, std::memory_order_release);
  }
  const bool forked = core_->loops.front()->parts_->isForked();
  if (forked || isExiting()) return;
  if (EventLoop::current() != nullptr || globalExecutor().inEventLoop()) {
    // Waiting here could wait for ourselves. The threads end on their own; each loop lives until
    // then.
    return;
  }
  bool all = true;
  for (const Ref<EventLoop>& loop : core_->loops) {
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

// While the group shuts down, loops that never started have ended already: the others take over.
EventLoop& EventLoopGroup::next() {
  auto& chosen = static_cast<EventLoop&>(core_->chooser->next());
  if (__builtin_expect(!chosen.isShutdown(), 1)) return chosen;
  for (const Ref<EventLoop>& loop : core_->loops) {
    if (!loop->isShutdown()) return *loop;
  }
  return chosen;
}

bool EventLoopGroup::inEventLoop() const noexcept {
  for (const Ref<EventLoop>& loop : core_->loops) {
    if (loop->inEventLoop()) return true;
  }
  return false;
}

std::size_t EventLoopGroup::load() const noexcept {
  std::size_t sum = 0;
  for (const Ref<EventLoop>& loop : core_->loops) sum += loop->load();
  return sum;
}

EventLoopGroup::Iterator EventLoopGroup::begin() const noexcept {
  return Iterator(core_->loops.data());
}
EventLoopGroup::Iterator EventLoopGroup::end() const noexcept {
  return Iterator(core_->loops.data() + core_->loops.size());
}
std::size_t EventLoopGroup::size() const noexcept { return core_->loops.size(); }

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
  return allOf(core_->loops, [](const EventLoop& loop) { return loop.isShuttingDown(); });
}
bool EventLoopGroup::isShutdown() const noexcept {
  return allOf(core_->loops, [](const EventLoop& loop) { return loop.isShutdown(); });
}
bool EventLoopGroup::isTerminated() const noexcept {
  return allOf(core_->loops, [](const EventLoop& loop) { return loop.isTerminated(); });
}

Future<ShutdownReport> EventLoopGroup::shutdownGracefully(Duration quiet, Duration timeout) {
  for (const Ref<EventLoop>& loop : core_->loops) {
    static_cast<void>(loop->shutdownGracefully(quiet, timeout));
  }
  return terminationFuture();
}

Future<ShutdownReport> EventLoopGroup::terminationFuture() const { return core_->terminatedFuture; }

LoopMetrics EventLoopGroup::metrics() const {
  LoopMetrics sum;
  for (const Ref<EventLoop>& loop : core_->loops) sum += loop->metrics();
  return sum;
}

std::string EventLoopGroup::dump() const {
  std::string text = "group " + core_->name + ": " + std::to_string(core_->loops.size()) +
                     " loops, " + std::to_string(core_->loops.size() - endedLoops()) +
                     " keep it from ending\n";
  for (const Ref<EventLoop>& loop : core_->loops) text += loop->dump();
  return text;
}

std::size_t EventLoopGroup::endedLoops() const noexcept {
  std::size_t ended = 0;
  for (const Ref<EventLoop>& loop : core_->loops) ended += loop->isTerminated() ? 1 : 0;
  return ended;
}

const std::string& EventLoopGroup::name() const noexcept { return core_->name; }

}  // namespace millrace
