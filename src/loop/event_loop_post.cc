// SPDX-License-Identifier: Apache-2.0
// How tasks and timers come in. Any thread; see docs/design/wakeup.md.
#include "loop/event_loop_parts.h"

#include <millrace/base/error.h>

#include <stdexcept>

namespace millrace {

namespace {

/// Every so many posts of a thread one measures how long it takes to be run.
constexpr std::uint32_t kProbeInterval = 256;
/// Every so many posts to a loop that is behind one waits a moment.
constexpr std::uint32_t kEaseInterval = 4;
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t tlsPosts = 0;

}  // namespace

bool EventLoop::Parts::isForked() const noexcept {
  return currentForkGeneration() != forkGeneration;
}

void EventLoop::Parts::checkNotForked(const char* call) const {
  if (!isForked()) return;
  throw Exception(Error(Errc::forked, call,
                        loopName + " (its thread stayed in the parent process; make a new "
                                   "EventLoopGroup after fork())"));
}

// Room for one more user task; given back when it begins to run.
bool EventLoop::Parts::reserve() noexcept {
  if (options.maxPendingTasks == 0) return true;
  const auto limit = static_cast<std::int64_t>(options.maxPendingTasks);
  if (reserved.fetch_add(1, std::memory_order_relaxed) < limit) return true;
  reserved.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

bool EventLoop::Parts::post(Task& task, Wake wake, IfNoThread then) {
  if (!self.inEventLoop()) return postFromOutside(task, wake, then, TaskNode::user);
  if (closed || !reserve()) return false;
  postInLoop(task, TaskNode::user);
  return true;
}

// Ours: no capacity counts against it.
bool EventLoop::Parts::postOwn(Task& task) {
  if (!self.inEventLoop()) {
    return postFromOutside(task, Wake::now, IfNoThread::tell, TaskNode::framework);
  }
  if (closed) return false;
  postInLoop(task, TaskNode::framework);
  return true;
}

// A pause of about 50 ns every few posts.
inline void EventLoop::Parts::easeOff() const noexcept {
  if (tlsPosts % kEaseInterval == 0) cpuRelax();
}

// A task that is not taken stays with the caller.
bool EventLoop::Parts::postFromOutside(Task& task, Wake wake, IfNoThread then,
                                       std::uintptr_t kind) {
  if (__builtin_expect(isForked(), 0)) return false;
  if (kind == TaskNode::user && __builtin_expect(!reserve(), 0)) return false;
  NodeCache& mine = NodeCache::ofThread();
  if (__builtin_expect(++tlsPosts % kProbeInterval == 0, 0)) pushProbe();
  TaskNode* node = mine.get(in.inbox.pool());
  node->fill(std::move(task));
  if (__builtin_expect(!in.inbox.push(node, kind, mine), 0)) {
    takeBack(*node, task, kind);
    return false;
  }
  if (__builtin_expect(life.state() == State::notStarted, 0)) {
    if (const Result<void> started = startIfNeeded(*node); !started) {
      takeBack(*node, task, kind);
      if (then == IfNoThread::tell) return false;
      started.error().raise();
    }
  }
  if (wake == Wake::now) wakeIfAsleep();
  if (__builtin_expect(in.behind.load(std::memory_order_relaxed), 0)) easeOff();
  return true;
}

[[gnu::noinline]] void EventLoop::Parts::takeBack(TaskNode& node, Task& task,
                                                  std::uintptr_t kind) noexcept {
  if (kind == TaskNode::user) unreserve();
  task = std::move(node.task);
  NodeCache::ofThread().unget(&node);
}

void EventLoop::Parts::postInLoop(Task& task, std::uintptr_t kind) {
  // What others pushed before comes first.
  if (!in.inbox.isEmpty()) takeInbox();
  TaskNode* node = cache->get(in.inbox.pool());
  node->fill(std::move(task));
  node->set(nullptr, kind);
  runList.append(node);
  if (kind == TaskNode::user) noteTaken(1);
}

bool EventLoop::Parts::pushFramework(TaskNode& node) {
  return in.inbox.push(&node, TaskNode::framework | TaskNode::borrowed);
}

// A node that tells how long posts wait before they run.
[[gnu::noinline]] void EventLoop::Parts::pushProbe() {
  NodeCache& mine = NodeCache::ofThread();
  TaskNode* node = mine.get(in.inbox.pool());
  node->fill([this, posted = Clock::real().nanos()] {
    figures.taskDelay.record(Clock::real().nanos() - posted);
  });
  if (!in.inbox.push(node, TaskNode::framework | TaskNode::probe, mine)) {
    node->task.reset();
    mine.unget(node);
  }
}

[[gnu::noinline]] void EventLoop::Parts::wake() noexcept {
  wakeRequestedAt.store(Clock::real().nanos(), std::memory_order_relaxed);
  io->wakeup();
}

// After `own` was pushed. If no thread can be made, it is the caller's again.
Result<void> EventLoop::Parts::startIfNeeded(TaskNode& own) {
  if (byHand) return {};
  return life.start(in.inbox, &own, [this] { return makeThread(); });
}

// Takes over one reference, which becomes the queue's.
bool EventLoop::Parts::arm(TimerNode& timer) {
  if (self.inEventLoop()) {
    if (closed) {
      timer.unrefQueued();
      return false;
    }
    timers.adopt(timer);
    return true;
  }
  TaskNode& node = timer.node();
  if (!in.inbox.push(&node,
                     TaskNode::framework | TaskNode::borrowed | TaskNode::timer | TaskNode::arm)) {
    timer.unrefQueued();
    return false;
  }
  if (life.state() == State::notStarted) {
    if (const Result<void> started = startIfNeeded(node); !started) {
      timer.unrefQueued();
      started.error().raise();
    }
  }
  const bool many = outsideTimers.fetch_add(1, std::memory_order_relaxed) % 1024 == 1023;
  if (many ? in.word.mustWake() : in.word.mustWakeFor(timer.deadline())) wake();
  return true;
}

void EventLoop::Parts::reject(Task&& task) {
  checkNotForked("execute");
  options.rejection(std::move(task), self);
}

void EventLoop::Parts::clockMoved() noexcept {
  if (tickQueued.exchange(true, std::memory_order_acq_rel)) return;
  if (pushFramework(tickNode)) wakeIfAsleep();
}

// --- the public calls ---

namespace {

[[gnu::noinline, noreturn]] void emptyTask(const char* call) {
  throw std::invalid_argument(std::string(call) + "(): the task is empty; give it a callable");
}

inline void checkTask(const Task& task, const char* call) {
  if (!task) emptyTask(call);
}

void checkPeriod(const char* call, Duration initial, Duration period) {
  if (initial.count() < 0) {
    throw std::invalid_argument(std::string(call) + "(): the initial delay of " +
                                std::to_string(initial.count()) +
                                "ns is negative; use 0 to begin at once");
  }
  if (period.count() <= 0) {
    throw std::invalid_argument(std::string(call) + "(): the period of " +
                                std::to_string(period.count()) + "ns must be positive");
  }
}

}  // namespace

void EventLoop::execute(Task task) {
  checkTask(task, "execute");
  if (!parts_->post(task, Parts::Wake::now, Parts::IfNoThread::raise)) {
    parts_->reject(std::move(task));
  }
}

bool EventLoop::tryExecute(Task task) { return offer(task); }

bool EventLoop::executeOwn(Task task) { return parts_->postOwn(task); }

bool EventLoop::offer(Task& task) {
  checkTask(task, "tryExecute");
  return parts_->post(task, Parts::Wake::now, Parts::IfNoThread::tell);
}

void EventLoop::lazyExecute(Task task) {
  checkTask(task, "lazyExecute");
  if (!parts_->post(task, Parts::Wake::lazily, Parts::IfNoThread::raise)) {
    parts_->reject(std::move(task));
  }
}

ScheduledFuture EventLoop::Parts::scheduleTimer(const char* call, Duration delay, Duration period,
                                                TimerNode::Repeat repeat, Task&& task) {
  checkTask(task, call);
  checkNotForked(call);
  const std::int64_t first = delay.count() < 0 ? 0 : delay.count();
  Ref<TimerNode> timer =
      timers.make(saturatingAdd(now(), first), period.count(), repeat, std::move(task), 2);
  if (!arm(*timer)) {
    throw RejectedExecution(std::string(call) +
                            "(): rejected, the executor is shut down and takes no more tasks");
  }
  return ScheduledFuture::adopt(*timer.release());
}

ScheduledFuture EventLoop::schedule(Duration delay, Task task) {
  return parts_->scheduleTimer("schedule", delay, {}, TimerNode::Repeat::no, std::move(task));
}

ScheduledFuture EventLoop::scheduleAtFixedRate(Duration initial, Duration period, Task task) {
  checkPeriod("scheduleAtFixedRate", initial, period);
  return parts_->scheduleTimer("scheduleAtFixedRate", initial, period,
                               TimerNode::Repeat::atFixedRate, std::move(task));
}

ScheduledFuture EventLoop::scheduleWithFixedDelay(Duration initial, Duration delay, Task task) {
  checkPeriod("scheduleWithFixedDelay", initial, delay);
  return parts_->scheduleTimer("scheduleWithFixedDelay", initial, delay,
                               TimerNode::Repeat::withFixedDelay, std::move(task));
}

bool TailTask::remove() const noexcept {
  if (!state_ || !state_->claim()) return false;
  state_->task.reset();
  return true;
}

TailTask EventLoop::executeAfterEventLoopIteration(Task task) {
  checkTask(task, "executeAfterEventLoopIteration");
  Parts& parts = *parts_;
  TailTask handle;
  handle.state_ = std::make_shared<TailTask::State>();
  handle.state_->task = std::move(task);
  auto body = [state = handle.state_] {
    if (state->claim()) state->task();
  };
  // Refused or not, remove() tells the truth: what runs is what claims.
  const auto refuse = [&] { parts.reject(std::move(body)); };
  if (inEventLoop() ? parts.closed : parts.isForked()) {
    refuse();
    return handle;
  }
  if (!parts.reserve()) {
    refuse();
    return handle;
  }
  NodeCache& mine = NodeCache::ofThread();
  TaskNode* node = mine.get(parts.in.inbox.pool());
  node->fill(Task(body));
  if (inEventLoop()) {
    node->set(nullptr, TaskNode::tail);
    parts.tail.append(node);
    parts.noteTaken(1);
  } else if (parts.in.inbox.push(node, TaskNode::tail, mine)) {
    parts.wakeIfAsleep();
  } else {
    node->task.reset();
    mine.unget(node);
    parts.unreserve();
    refuse();
  }
  return handle;
}

}  // namespace millrace
