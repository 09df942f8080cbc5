// SPDX-License-Identifier: Apache-2.0
#include "loop/group_core.h"

#include <millrace/concurrent/global_executor.h>

#include <algorithm>
#include <stdexcept>

namespace millrace {

namespace {

Atomic<int> nextGroupNumber{1};

std::string nameOf(const LoopOptions::Values& values) {
  const int number = nextGroupNumber.fetch_add(1, std::memory_order_relaxed);
  return values.name.empty() ? std::to_string(number) : values.name;
}

}  // namespace

LoopSource::LoopSource() noexcept : forkGeneration_(currentForkGeneration()) {}
LoopSource::~LoopSource() = default;

bool LoopSource::isForked() const noexcept { return currentForkGeneration() != forkGeneration_; }

bool LoopSource::mayWait() const noexcept {
  return !isForked() && !isExiting() && EventLoop::current() == nullptr &&
         !globalExecutor().inEventLoop();
}

EventLoopGroup::Core::Core(const LoopOptions& given)
    : options(given),
      name(nameOf(given.values())),
      onDemand(given.values().io.onDemand),
      limit(given.values().loops == 0 ? kMostOnDemand
                                      : static_cast<std::size_t>(given.values().loops)) {
  const Duration threshold = options.values().watchdog;
  if (threshold.count() != 0) watchdog = std::make_shared<Watchdog>(name, threshold);
}

Ref<EventLoop> EventLoopGroup::Core::makeLoop(EventLoopGroup* group) {
  const auto index = static_cast<int>(children.size());
  std::string title = "mr-" + name + "-" + std::to_string(index + 1);
  Ref<EventLoop> loop(new EventLoop(options, std::move(title), index, false));
  endExecutor->refuseWaitingOn(*loop);
  loop->parts_->watchdog = watchdog;
  loop->parts_->group.store(group, std::memory_order_release);
  children.add(loop);
  return loop;
}

void EventLoopGroup::Core::makeAll(EventLoopGroup* group) {
  handle = group;
  if (onDemand) {
    children.reserve(limit);
    return;
  }
  const int wanted = options.values().loops;
  const int count = wanted == 0 ? defaultLoopCount() : wanted;
  try {
    children.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) makeLoop(group);
  } catch (const Exception& e) {
    endLoops();
    throw Exception(Error(e.error().code(), "EventLoopGroup " + name,
                          "(making loop " + std::to_string(children.size() + 1) + " of " +
                              std::to_string(count) + ": " + e.error().message() + ")"));
  } catch (...) {
    endLoops();
    throw;
  }
  left = children.size();
  for (const Ref<EventLoop>& loop : children) {
    loop->parts_->onTerminated = [core = shared_from_this()](const Result<ShutdownReport>& result) {
      core->oneEnded(result);
    };
  }
  try {
    std::vector<EventExecutor*> executors;
    for (const Ref<EventLoop>& loop : children) executors.push_back(loop.get());
    chooser = options.values().chooser(executors);
    if (!chooser) throw std::invalid_argument("chooser(): the factory gave nothing");
  } catch (...) {
    endLoops();
    throw;
  }
}

// The group cannot be made. Its loops have not started and end here and now, unless a factory of the
// user's has given them work.
void EventLoopGroup::Core::endLoops() {
  for (const Ref<EventLoop>& loop : children) {
    loop->parts_->group.store(nullptr, std::memory_order_release);
    Future<ShutdownReport> end = loop->shutdownGracefully();
    if (globalExecutor().inEventLoop()) continue;
    end.await();
    loop->parts_->joinThread();
  }
}

void EventLoopGroup::Core::oneEnded(const Result<ShutdownReport>& result) {
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

// A group on demand may have no loop to wait for.
void EventLoopGroup::Core::endIfEmpty() {
  {
    std::lock_guard lock(mutex);
    if (!onDemand || left != 0) return;
  }
  terminated.trySuccess(report);
}

// While the group shuts down, loops that never started have ended already: the others take over.
EventLoop& EventLoopGroup::Core::next() {
  if (chooser == nullptr) {
    throw std::logic_error("group " + name +
                           " has a loop for each channel, and no next(); use a bootstrap or "
                           "acquireLoop()");
  }
  auto& chosen = static_cast<EventLoop&>(chooser->next());
  if (__builtin_expect(!chosen.isShutdown(), 1)) return chosen;
  for (const Ref<EventLoop>& each : children) {
    if (!each->isShutdown()) return *each;
  }
  return chosen;
}

// Those who give the group work hear of its end first.
void EventLoopGroup::Core::tellListeners() {
  std::vector<std::pair<std::uint64_t, Task>> batch;
  {
    std::lock_guard lock(mutex);
    told.store(true, std::memory_order_release);
    batch = std::move(listeners);
    listeners.clear();
  }
  for (auto& [id, listener] : batch) listener();
}

// --- LoopSource ---

Result<Ref<EventLoop>> EventLoopGroup::Core::acquire() {
  if (!onDemand) return Ref<EventLoop>(&next());
  std::lock_guard lock(mutex);
  if (told.load(std::memory_order_relaxed)) {
    return Error(Errc::rejected, "acquireLoop", "group " + name + " (it is shut down)");
  }
  if (!idle.empty()) {
    EventLoop* loop = idle.back();
    idle.pop_back();
    return Ref<EventLoop>(loop);
  }
  if (children.size() >= limit) {
    return Error(Errc::rejected, "acquireLoop",
                 "group " + name + " (too many channels: it has a thread for each, and may have " +
                     std::to_string(limit) + ")");
  }
  try {
    Ref<EventLoop> loop = makeLoop(handle);
    ++left;
    loop->parts_->onTerminated = [core = shared_from_this()](const Result<ShutdownReport>& result) {
      core->oneEnded(result);
    };
    loop->parts_->onIdle = [weak = weak_from_this()](EventLoop& empty) {
      if (const auto core = weak.lock()) core->giveBack(empty);
    };
    return loop;
  } catch (...) {
    return Error::fromCurrentException("acquireLoop");
  }
}

// Its channel is gone, or never came.
void EventLoopGroup::Core::giveBack(EventLoop& loop) noexcept {
  if (!onDemand) return;
  std::lock_guard lock(mutex);
  if (std::find(idle.begin(), idle.end(), &loop) == idle.end()) idle.push_back(&loop);
}

std::uint64_t EventLoopGroup::Core::addShutdownListener(Task listener) {
  std::lock_guard lock(mutex);
  if (told.load(std::memory_order_relaxed)) return 0;
  listeners.emplace_back(nextListener, std::move(listener));
  return nextListener++;
}

bool EventLoopGroup::Core::removeShutdownListener(std::uint64_t id) {
  std::lock_guard lock(mutex);
  return std::erase_if(listeners, [id](const auto& each) { return each.first == id; }) != 0;
}

}  // namespace millrace
