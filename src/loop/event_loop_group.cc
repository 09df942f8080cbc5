// SPDX-License-Identifier: Apache-2.0
#include "loop/end_executor.h"
#include "loop/event_loop_parts.h"
#include "loop/watchdog.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_source.h>

#include <mutex>
#include <stdexcept>

namespace millrace {

namespace {

Atomic<int> nextGroupNumber{1};

}  // namespace

LoopSource::~LoopSource() = default;

struct EventLoopGroup::Core final : LoopSource {
  std::string name;
  std::vector<Ref<EventLoop>> children;
  std::unique_ptr<Chooser> chooser;
  std::shared_ptr<Watchdog> watchdog;  // shared with the loops; null: none
  Ref<EndExecutor> endExecutor = makeRef<EndExecutor>();
  Promise<ShutdownReport> terminated{*endExecutor};
  Future<ShutdownReport> terminatedFuture = terminated.future();
  std::mutex mutex;
  std::size_t left = 0;   // guarded by mutex: loops that have not ended
  ShutdownReport report;  // guarded by mutex
  Error failure;          // guarded by mutex
  std::vector<std::pair<std::uint64_t, Task>> listeners;  // guarded by mutex
  std::uint64_t nextListener = 1;                         // guarded by mutex
  bool told = false;                                      // guarded by mutex

  // While the group shuts down, loops that never started have ended already: the others take over.
  EventLoop& next() {
    auto& chosen = static_cast<EventLoop&>(chooser->next());
    if (__builtin_expect(!chosen.isShutdown(), 1)) return chosen;
    for (const Ref<EventLoop>& each : children) {
      if (!each->isShutdown()) return *each;
    }
    return chosen;
  }

  // --- LoopSource ---
  Result<Ref<EventLoop>> acquire() override { return Ref<EventLoop>(&next()); }
  std::vector<Ref<EventLoop>> loops() const override { return children; }
  std::uint64_t addShutdownListener(Task listener) override {
    std::lock_guard lock(mutex);
    if (told) return 0;
    listeners.emplace_back(nextListener, std::move(listener));
    return nextListener++;
  }
  bool removeShutdownListener(std::uint64_t id) override {
    std::lock_guard lock(mutex);
    return std::erase_if(listeners, [id](const auto& each) { return each.first == id; }) != 0;
  }

  // Those who give the group work hear of its end first.
  void tellListeners() {
    std::vector<std::pair<std::uint64_t, Task>> batch;
    {
      std::lock_guard lock(mutex);
      told = true;
      batch = std::move(listeners);
    }
    for (auto& [id, listener] : batch) listener();
  }

  // The group cannot be made. Its loops have not started and end here and now, unless a factory of
  // the user's has given them work.
  void endLoops() {
    for (const Ref<EventLoop>& loop : children) {
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
    core_->children.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      std::string title = "mr-" + core_->name + "-" + std::to_string(i + 1);
      core_->children.emplace_back(new EventLoop(options, std::move(title), i, false));
      core_->endExecutor->refuseWaitingOn(*core_->children.back());
      core_->children.back()->parts_->watchdog = core_->watchdog;
      core_->children.back()->parts_->group.store(this, std::memory_order_release);
    }
  } catch (const Exception& e) {
    core_->endLoops();
    throw Exception(Error(e.error().code(), "EventLoopGroup " + core_->name,
                          "(making loop " + std::to_string(core_->children.size() + 1) + " of " +
                              std::to_string(count) + ": " + e.error().message() + ")"));
  } catch (...) {
    core_->endLoops();
    throw;
  }
  core_->left = core_->children.size();
  for (const Ref<EventLoop>& loop : core_->children) {
    loop->parts_->onTerminated = [core = core_](const Result<ShutdownReport>& result) {
      core->oneEnded(result);
    };
  }
  try {
    std::vector<EventExecutor*> children;
    for (const Ref<EventLoop>& loop : core_->children) children.push_back(loop.get());
    core_->chooser = values.chooser(children);
    if (!core_->chooser) throw std::invalid_argument("chooser(): the factory gave nothing");
  } catch (...) {
    core_->endLoops();
    throw;
  }
}

EventLoopGroup::~EventLoopGroup() {
  if (!core_->children.front()->parts_->isForked()) core_->tellListeners();
  for (const Ref<EventLoop>& loop : core_->children) {
    // Who has asked for it before has said how long it may take.
    if (!loop->isShuttingDown()) static_cast<void>(loop->shutdownGracefully());
    loop->parts_->group.store(nullptr, std::memory_order_release);
  }
  const bool forked = core_->children.front()->parts_->isForked();
  if (forked || isExiting()) return;
  if (EventLoop::current() != nullptr || globalExecutor().inEventLoop()) {
    // Waiting here could wait for ourselves. The threads end on their own; each loop lives until
    // then.
    return;
  }
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
  return Iterator(core_->children.data());
}
EventLoopGroup::Iterator EventLoopGroup::end() const noexcept {
  return Iterator(core_->children.data() + core_->children.size());
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
  return allOf(core_->children, [](const EventLoop& loop) { return loop.isShuttingDown(); });
}
bool EventLoopGroup::isShutdown() const noexcept {
  return allOf(core_->children, [](const EventLoop& loop) { return loop.isShutdown(); });
}
bool EventLoopGroup::isTerminated() const noexcept {
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
  if (!core_->children.front()->parts_->isForked()) core_->tellListeners();
  for (const Ref<EventLoop>& loop : core_->children) {
    static_cast<void>(loop->shutdownGracefully(quiet, timeout));
  }
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
