// SPDX-License-Identifier: Apache-2.0
// The start of a loop's thread, its shutdown and its end. See docs/design/start-and-shutdown.md.
#include "concurrent/shutdown_periods.h"
#include "loop/event_loop_parts.h"
#include "loop/watchdog.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/sys/futex.h>
#include <millrace/sys/signal.h>

#include <algorithm>
#include <stdexcept>

namespace millrace {

namespace {

/// Completes the end of a loop when its thread's locals are gone: constructed first, so destroyed
/// last.
struct EndOfThread {
  EventLoop* loop = nullptr;  // counted
  void (*finish)(EventLoop*) = nullptr;
  ~EndOfThread() {
    if (loop != nullptr) finish(loop);
  }
};

}  // namespace

// --- start ---

Result<void> EventLoop::Parts::makeThread() {
  if (isForked()) {
    return Error(Errc::forked, "start", loopName + " (make a new EventLoopGroup after fork())");
  }
  watchForExit();
  self.ref();  // the thread's
  auto body = [this] { threadBody(); };
  if (options.executor != nullptr || options.threadFactory) {
    try {
      if (options.executor != nullptr) {
        options.executor->execute(body);
      } else {
        options.threadFactory(loopName, body);
      }
      return {};
    } catch (...) {
      self.unref();
      return Error::fromCurrentException("start " + loopName);
    }
  }
  ownsThread = true;
  Result<Thread> started = startThread(loopName, body);
  if (!started) {
    ownsThread = false;
    self.unref();
    return started.error();
  }
  std::lock_guard lock(threadMutex);
  thread = std::move(started).value();
  return {};
}

void EventLoop::Parts::threadBody() {
  static thread_local EndOfThread end;
  const bool tellAtThreadEnd = ownsThread;
  if (tellAtThreadEnd) {
    end.loop = &self;
    end.finish = [](EventLoop* loop) {
      loop->parts_->terminate();
      setLogThread("");  // the name goes with the loop
      loop->unref();
    };
    setLogThread(loopName.c_str());
    static_cast<void>(blockAllSignals());
  }
  {
    // Before the rest of the set-up, which the watchdog's thread would inherit.
    const Watchdog::Guard guarded(watchdog.get(), self);
    if (tellAtThreadEnd) tuneThread();
    drive();
  }
  if (!tellAtThreadEnd) {
    Ref<EventLoop> last = Ref<EventLoop>::adopt(&self);
    terminate();
  }
}

void EventLoop::Parts::tuneThread() const {
  static_cast<void>(setTimerSlack(1));
  if (!options.cpus.empty()) {
    const int cpu = options.cpus[static_cast<std::size_t>(index) % options.cpus.size()];
    if (Result<void> pinned = pinThread({cpu}); !pinned) {
      log(LogLevel::warn, "loop", loopName, ": runs unpinned: ", pinned.error().message());
    }
  }
  if (options.setsNice) {
    if (Result<void> set = setThreadPriority(options.nice); !set) {
      log(LogLevel::warn, "loop", loopName, ": keeps its priority: ", set.error().message());
    }
  }
}

// The loop is driven by the calling thread from now on.
void EventLoop::Parts::beginRunning() {
  life.markStarted();
  cache = &NodeCache::ofThread();
  kernelThread.store(millrace::threadId(), std::memory_order_relaxed);
  lastExecution = now();
  if (Result<void> ready = io->attach(*this); !ready) {
    bodyFailure = ready.error();
    log(LogLevel::error, "loop", loopName, ": cannot run: ", bodyFailure.message());
    requestStop();
  } else {
    engineAttached = true;
  }
}

void EventLoop::Parts::drive() {
  beginRunning();
  while (!closed) turn(Deadline::never());
}

// --- shutdown ---

namespace {

void raiseTo(Atomic<std::int64_t>& value, std::int64_t wanted) noexcept {
  std::int64_t seen = value.load(std::memory_order_relaxed);
  while (seen < wanted && !value.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                                       std::memory_order_relaxed)) {
  }
}

}  // namespace

Future<ShutdownReport> EventLoop::shutdownGracefully(Duration quiet, Duration timeout) {
  checkPeriods(quiet, timeout);
  raiseTo(parts_->quietNanos, quiet.count());
  raiseTo(parts_->timeoutNanos, timeout.count());
  if (!parts_->isForked()) parts_->requestStop();
  return terminationFuture();
}

void EventLoop::Parts::requestStop() {
  if (stopRequested.exchange(true, std::memory_order_acq_rel)) return;
  if (life.endUnstarted()) {
    endUnstarted();
    return;
  }
  if (pushFramework(stopNode)) wakeIfAsleep();
  pauseWord.store(1, std::memory_order_seq_cst);
  futexWake(pauseWord, 1);
}

// Runs as a node of the inbox: everything queued before it runs before it.
void EventLoop::Parts::beginShutdown() {
  if (shutdownBegun) return;
  shutdownBegun = true;
  if (life.state() < State::shuttingDown) life.advance(State::shuttingDown);
  shutdownBegan = now();
  std::vector<Task> first;
  {
    std::lock_guard lock(hookMutex);
    beforeClosed = true;
    first = std::move(beforeHooks);
  }
  for (Task& task : first) runHook(task, "beforeShutdown task");
  report.timersCancelled += timers.cancelAll();
  if (const FdWatch* watched = io->fdWatch()) report.watchesClosed += watched->watches();
  closeAll(CloseMode::linger);
}

Deadline EventLoop::Parts::shutdownWakeup() const noexcept {
  const std::int64_t hardEnd =
      saturatingAdd(shutdownBegan, timeoutNanos.load(std::memory_order_acquire));
  if (registrations() != 0) {
    return Deadline::at(upper == nullptr ? hardEnd : std::min(hardEnd, upper->nextDue()));
  }
  const std::int64_t quietEnd =
      saturatingAdd(lastExecution, quietNanos.load(std::memory_order_acquire));
  return Deadline::at(std::min(hardEnd, quietEnd));
}

// True when nothing is left to wait for.
bool EventLoop::Parts::confirmShutdown() {
  if (!shutdownBegun) beginShutdown();
  const std::int64_t moment = now();
  if (upper != nullptr && upper->nextDue() <= moment) {
    upper->runDue(moment);
    callbackEnded();
  }
  const std::int64_t timeout = timeoutNanos.load(std::memory_order_acquire);
  const std::int64_t quiet = quietNanos.load(std::memory_order_acquire);
  const bool busy = hasTasks() || registrations() != 0;
  if (moment - shutdownBegan >= timeout && (busy || quiet != 0)) {
    report.timedOut = true;
    io->interrupt();
    closeAll(CloseMode::force);
    return true;
  }
  return !busy && (quiet == 0 || moment - lastExecution >= quiet);
}

// Any thread. What hangs on the engine for a channel is counted there, too: more than none is what
// matters.
std::size_t EventLoop::Parts::registrations() const noexcept {
  return std::max(aboveCount.load(std::memory_order_relaxed), io->registrations());
}

void EventLoop::attach(std::unique_ptr<LoopAttachment> attachment) {
  assertInEventLoop();
  attachment->count_ = &parts_->aboveCount;
  attachment->figures_ = &parts_->aboveFigures;
  parts_->upper = std::move(attachment);
  parts_->attached = parts_->upper.get();
}

void EventLoop::Parts::closeAll(CloseMode mode) {
  io->closeAll(mode);
  if (upper == nullptr) return;
  upper->closeAll(mode);
  callbackEnded();
}

// Everything after the quiet period: hooks, the last tasks, the engine.
void EventLoop::Parts::endInLoop() {
  turnBegan.store(Clock::real().nanos(), std::memory_order_relaxed);  // hooks may block, too
  runHooks();
  // What came while hooks ran, too late to be closed with the others.
  if (registrations() != 0) closeAll(CloseMode::force);
  life.advance(State::shutdown);
  closed = true;
  runList.append(takeCounted([this] { return in.inbox.close(); }).chain);
  runAllLeft();
  report.timersCancelled += timers.cancelAll();
  if (upper != nullptr) upper->addTo(report);
  attached = nullptr;
  upper.reset();
  attributes.clear();
  used.flush(in.inbox.pool());
  if (!real) time->removeListener(*this);
  if (engineAttached) io->detach();
  io->awaitWakeups(in.word.paid());
  turnBegan.store(0, std::memory_order_relaxed);
  kernelThread.store(0, std::memory_order_relaxed);
}

// Hooks may post tasks and add hooks: until neither is left.
void EventLoop::Parts::runHooks() {
  for (;;) {
    std::vector<std::pair<std::uint64_t, Task>> batch;
    {
      std::lock_guard lock(hookMutex);
      batch = std::move(hooks);
      hooks.clear();
      hooksClosed = batch.empty();
    }
    if (batch.empty()) return;
    for (auto& [id, hook] : batch) runHook(hook, "shutdown hook");
    runBatch();
  }
}

void EventLoop::Parts::runAllLeft() {
  const std::uint64_t before = progress.load(std::memory_order_relaxed);
  while (TaskNode* node = runList.popFront()) runNode(node);
  callbackEnded();
  runTail();
  if (report.timedOut) {
    report.tasksRunAfterTimeout += progress.load(std::memory_order_relaxed) - before;
  }
}

// A loop that never had a thread ends on the caller's.
void EventLoop::Parts::endUnstarted() {
  const Executor* before = std::exchange(internal::tlsCurrentExecutor, &self);
  cache = &NodeCache::ofThread();
  lastExecution = now();
  if (upper != nullptr) upper->threadChanged();
  runBatch();
  beginShutdown();
  if (registrations() != 0) closeAll(CloseMode::force);
  endInLoop();
  internal::tlsCurrentExecutor = before;
  terminate();
}

// The last reference is gone and nobody will drive it again.
void EventLoop::Parts::endAbandoned() {
  stopRequested.store(true, std::memory_order_relaxed);
  if (!life.endUnstarted()) life.advance(State::shuttingDown);
  endUnstarted();
}

void EventLoop::Parts::terminate() {
  life.advance(State::terminated);
  const Result<ShutdownReport> result =
      bodyFailure ? Result<ShutdownReport>(bodyFailure) : Result<ShutdownReport>(report);
  // Not by a listener: those run on the global executor, which would need a thread for each group.
  auto tellGroup = std::exchange(onTerminated, nullptr);
  terminated.tryComplete(result);
  if (tellGroup) tellGroup(result);
}

void EventLoop::Parts::joinThread() noexcept {
  std::lock_guard lock(threadMutex);
  if (!thread.joinable()) return;
  if (isForked()) {
    static_cast<void>(
        new Thread(std::move(thread)));  // the parent's: nothing may be done with it here
  } else if (thread.id() == currentThread()) {
    thread.detach();
  } else {
    thread.join();
  }
}

// --- hooks ---

bool EventLoop::beforeShutdown(Task task) {
  if (!task) throw std::invalid_argument("beforeShutdown(): the task is empty; give it a callable");
  std::lock_guard lock(parts_->hookMutex);
  if (parts_->beforeClosed) return false;
  parts_->beforeHooks.push_back(std::move(task));
  return true;
}

std::uint64_t EventLoop::addShutdownHook(Task hook) {
  if (!hook)
    throw std::invalid_argument("addShutdownHook(): the hook is empty; give it a callable");
  std::lock_guard lock(parts_->hookMutex);
  if (parts_->hooksClosed) return 0;
  parts_->hooks.emplace_back(parts_->nextHook, std::move(hook));
  return parts_->nextHook++;
}

bool EventLoop::removeShutdownHook(std::uint64_t id) {
  std::lock_guard lock(parts_->hookMutex);
  return std::erase_if(parts_->hooks, [id](const auto& each) { return each.first == id; }) != 0;
}

// --- by hand ---

void EventLoop::Parts::wrongDriver() const {
  throw std::logic_error(
      loopName + (byHand
                      ? ": run() on a second thread; a hand-driven loop belongs to the thread that "
                        "called run() first"
                      : ": run() on a loop that has a thread of its own; use "
                        "EventLoop::handDriven() for a loop that you drive"));
}

std::size_t EventLoop::run(Deadline until) {
  Parts& parts = *parts_;
  if (!parts.byHand) parts.wrongDriver();
  parts.checkNotForked("run");
  const std::uint64_t me = currentThread();
  std::uint64_t owner = 0;
  if (!parts.driver.compare_exchange_strong(owner, me, std::memory_order_acq_rel) && owner != me) {
    parts.wrongDriver();
  }
  if (inEventLoop()) {
    throw std::logic_error(name() + ": run() from within its own turn");
  }
  if (isShutdown()) return 0;
  if (!parts.begunByHand) {
    if (!parts.life.startByHand()) return 0;  // another thread is ending it
    parts.begunByHand = true;
    parts.beginRunning();
  }
  parts.turnEnded = 0;  // what the caller did between two runs is not I/O time
  const std::size_t handled = parts.turn(until);
  if (parts.closed && !isTerminated()) parts.terminate();
  return handled;
}

}  // namespace millrace
