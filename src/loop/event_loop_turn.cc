// SPDX-License-Identifier: Apache-2.0
// One turn of a loop. Loop thread only; docs/design/loop-turn.md tells the same in words.
#include "loop/event_loop_parts.h"
#include "loop/readable_name.h"

#include <millrace/base/log.h>
#include <millrace/sys/futex.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>

namespace millrace {

namespace {

/// The clock is read, and the I/O looked at, no later than every so many tasks.
constexpr std::size_t kTasksPerBatch = 64;
constexpr int kPrematureWorthALine = 3;
constexpr std::int64_t kLateNanos = 1'000'000;
/// After a failed turn of a loop that is ending.
constexpr Duration kEndPause = std::chrono::milliseconds(10);
/// I/O of one turn is not counted beyond this: a manual clock may have jumped.
constexpr std::int64_t kMaxIoNanos = std::int64_t{3'600} * 1'000'000'000;

std::string outcomeOf(const Result<void>& rebuilt) {
  if (rebuilt) return "selector made anew";
  return "the selector could not be made anew, the old one stays: " + rebuilt.error().message();
}

}  // namespace

// Sets the current loop for the length of the turn, and looks at the shutdown even if the turn
// threw.
std::size_t EventLoop::Parts::turn(Deadline limit) {
  struct Current {
    const Executor* before;
    explicit Current(const Executor* mine)
        : before(std::exchange(internal::tlsCurrentExecutor, mine)) {}
    ~Current() { internal::tlsCurrentExecutor = before; }
  } current(&self);
  events = 0;
  const std::uint64_t tasksBefore = progress.load(std::memory_order_relaxed);
  try {
    runTurn(limit);
  } catch (...) {
    failedTurn(limit);
  }
  const std::uint64_t ran = progress.load(std::memory_order_relaxed) - tasksBefore;
  if (ran != 0) lastExecution = turnEnded;
  if (life.state() == State::shuttingDown && confirmShutdown()) endInLoop();
  return ran + events;
}

void EventLoop::Parts::runTurn(Deadline limit) {
  gathered = runList.empty() && stream.gather(
                                    turnEnded, [] { return Clock::real().nanos(); },
                                    [this] { return in.inbox.isEmpty(); });
  const std::int64_t before = turnEnded;
  const std::uint64_t tasksBefore = progress.load(std::memory_order_relaxed);
  // Tasks run even if the wait fails or a callback escapes.
  std::exception_ptr escaped;
  int ready = 0;
  try {
    ready = ioPhase(limit);
  } catch (...) {
    escaped = std::current_exception();
  }
  // No strategy keeps a loop from ending: the request to stop is a task.
  if (ready == SelectStrategy::kContinue && !stopRequested.load(std::memory_order_relaxed)) return;
  const std::int64_t woke = now();
  const std::int64_t wokeReally = real ? woke : Clock::real().nanos();
  waitEnded = woke;
  turnBegan.store(wokeReally, std::memory_order_relaxed);
  const bool hadIo = ready > 0;
  try {
    if (hadIo) events += static_cast<std::size_t>(io->dispatch());
    // A selector made anew is looked at in the same turn.
    const bool early = waitWasEarly && events == 0;
    if (waitBlocked && (early || premature != 0) && noteWaitEnd(early) &&
        waitForIo(Deadline::past()).events > 0) {
      events += static_cast<std::size_t>(io->dispatch());
    }
  } catch (...) {
    escaped = std::current_exception();
  }
  std::int64_t ioNanos = 0;
  if (events != 0) figures.ioEvents.add(events);
  // How long it took matters to the tasks that share the time with it.
  if (hadIo && (!runList.empty() || !in.inbox.isEmpty() || !timers.isEmpty())) {
    waitEnded = now();
    // A wait that did not block counts as I/O.
    ioNanos = std::min(kMaxIoNanos, waitEnded - (waitBlocked || before == 0 ? woke : before));
  }
  runTasks(ioNanos, hadIo);
  if (!tail.empty()) runTail();
  if (!waitBlocked && premature != 0 &&
      (events != 0 || progress.load(std::memory_order_relaxed) != tasksBefore)) {
    noteWaitEnd(false);  // work in between: the early returns are not in a row
  }
  if (byHand) used.flush(in.inbox.pool());
  turnEnded = now();
  turnBegan.store(0, std::memory_order_relaxed);
  running.store(nullptr, std::memory_order_relaxed);
  // Figures come last: after a sleep each of them is a cache miss that tasks would wait for.
  figures.turns.add();
  if (wokenByPost) {
    figures.wakeups.add();
    // Who has asked may not have said when yet.
    if (const std::int64_t asked = wakeRequestedAt.load(std::memory_order_relaxed); asked != 0) {
      figures.taskDelay.record(wokeReally - asked);
      wakeRequestedAt.store(0, std::memory_order_relaxed);
    }
  }
  figures.turnTime.record(turnEnded - woke);
  figures.busyNanos.add(static_cast<std::uint64_t>(turnEnded - woke));
  if (escaped) std::rethrow_exception(escaped);
}

bool EventLoop::Parts::hasTasks() const noexcept {
  return !runList.empty() || !tail.empty() || !in.inbox.isEmpty() ||
         (upper != nullptr && upper->hasWork());
}

// Returns how many events wait to be dispatched, or kContinue.
int EventLoop::Parts::ioPhase(Deadline limit) {
  waitBlocked = false;
  waitWasEarly = false;
  wokenByPost = false;
  int decision = SelectStrategy::kSelect;
  if (strategy) {
    int found = 0;
    decision =
        strategy->decide([&] { return found = waitForIo(Deadline::past()).events; }, hasTasks());
    if (found > 0) return found;  // edges are reported once: they are not to be looked for again
    if (decision == SelectStrategy::kBusyWait) return waitForIo(Deadline::past()).events;
  } else if (gathered || hasTasks()) {
    return waitForIo(Deadline::past()).events;
  }
  return decision == SelectStrategy::kSelect ? blockUntil(limit) : decision;
}

WaitOutcome EventLoop::Parts::waitForIo(Deadline until) {
  Result<WaitOutcome> found = io->wait(until);
  if (found) return *found;
  engineFailure = "the engine failed: " + found.error().message() + "; " + outcomeOf(rebuild());
  throw Exception(found.error());
}

// Sleeps until an event, a wakeup, the next timer or `limit`.
int EventLoop::Parts::blockUntil(Deadline limit) {
  std::int64_t next = timers.next();
  if (life.state() == State::shuttingDown) {
    const std::int64_t check = shutdownWakeup().nanos();
    if (check < next) next = check;
  }
  const Deadline timer = Deadline::at(next);
  // A strategy may want to block although an earlier turn left tasks over.
  if (!runList.empty() || !tail.empty() || (!timer.isNever() && timer.isDue(now())) ||
      (!limit.isNever() && limit.isDue(Clock::real().nanos()))) {
    return waitForIo(Deadline::past()).events;
  }
  if (options.spin.count() != 0) {
    if (const std::optional<int> found = spinForWork(timer, limit)) return *found;
  }
  // A clock that is not real never becomes a kernel timeout: whoever moves it wakes us.
  const Deadline until = real && timer < limit ? timer : limit;
  WaitOutcome outcome;
  bool looked = false;
  used.flush(in.inbox.pool());  // a loop that sleeps keeps nothing back
  figures.sleeps.add();
  waitBlocked = true;
  const std::uint64_t paidBefore = in.word.paid();
  in.word.sleep(in.inbox, next, [&](bool pending) {
    looked = pending;
    outcome = waitForIo(pending ? Deadline::past() : until);
  });
  wokenByPost = in.word.paid() != paidBefore;
  waitWasEarly = !looked && !wokenByPost && !outcome.woken && in.inbox.isEmpty() &&
                 (until.isNever() || !until.isDue(Clock::real().nanos()));
  return outcome.events;
}

// Looks for work for a while before sleeping. Gives the events found when there is some: a task, a
// timer or `limit` that is due, or events. The look that found events is the last one, edges come
// once.
std::optional<int> EventLoop::Parts::spinForWork(Deadline timer, Deadline limit) {
  const std::int64_t end = saturatingAdd(Clock::real().nanos(), options.spin.count());
  const bool hasIo = io->registrations() != 0;
  std::int64_t moment = 0;
  do {
    bool ready = false;
    for (int i = 0; i < 32 && !ready; ++i) {
      ready = !in.inbox.isEmpty();
      cpuRelax();
    }
    const int found = hasIo ? waitForIo(Deadline::past()).events : 0;
    moment = Clock::real().nanos();
    if (ready || found > 0 || timer.isDue(now()) || limit.isDue(moment)) return found;
  } while (moment < end);
  return std::nullopt;
}

// Counts blocking waits that returned early with nothing; any other starts anew. True if the
// selector was made anew.
bool EventLoop::Parts::noteWaitEnd(bool early) {
  if (!early) {
    if (premature > kPrematureWorthALine) {
      log(LogLevel::debug, "loop", loopName, ": the selector returned early ", premature - 1,
          " times in a row");
    }
    premature = 0;
    return false;
  }
  ++premature;
  figures.premature.add();
  if (options.rebuildThreshold < 3 || premature < options.rebuildThreshold) return false;
  const int culprit = io->culprit();
  log(LogLevel::warn, "loop", loopName, ": the selector returned early ", premature,
      " times in a row with nothing to do",
      culprit < 0 ? std::string()
                  : "; descriptor " + std::to_string(culprit) +
                        " reports events that nobody watches (closed without unwatch?)");
  rebuildAndTell("it returned early too often");
  premature = 0;
  return true;
}

Result<void> EventLoop::Parts::rebuild() {
  Result<void> made = io->rebuild();
  if (made) figures.rebuilds.add();
  return made;
}

void EventLoop::Parts::rebuildAndTell(const char* reason) {
  const Result<void> made = rebuild();
  log(made ? LogLevel::info : LogLevel::error, "loop", loopName, ": ", reason, "; ",
      outcomeOf(made));
}

void EventLoop::Parts::failedTurn(Deadline limit) {
  figures.failures.add();
  turnEnded = now();
  turnBegan.store(0, std::memory_order_relaxed);
  std::string cause = std::exchange(engineFailure, {});
  if (cause.empty()) cause = Error::fromCurrentException("turn").message();
  log(LogLevel::warn, "loop", loopName, ": a turn failed, the loop goes on after a pause: ", cause);
  // Not in the engine, which may be what fails. A request to stop ends the pause; after it a short
  // one is enough to keep the loop from spinning.
  const std::uint32_t word = life.state() == State::shuttingDown ? 1 : 0;
  const Duration pause = word == 0 ? options.errorPause : std::min(options.errorPause, kEndPause);
  const Deadline until = std::min(Deadline::after(pause), limit);
  while (pauseWord.load(std::memory_order_acquire) == word && !until.isDue(Clock::real().nanos())) {
    futexWait(pauseWord, word, until);
  }
}

// --- tasks ---

// Any thread. Tasks in runList and tail are those that came less those begun, and each counts as
// come before it counts as begun; only a timer that turns out to be cancelled takes its counts
// back.
std::size_t EventLoop::Parts::pendingTasks() const noexcept {
  constexpr int kLooksBeforeYield = 100;
  for (int looks = 0;; ++looks) {
    const std::uint32_t before = takes.load(std::memory_order_acquire);
    const std::uint64_t begun = progress.load(std::memory_order_acquire);
    const std::uint64_t came =
        usersTaken.load(std::memory_order_acquire) + othersBegun.load(std::memory_order_acquire);
    const std::size_t pending = in.inbox.userTasks() + (came > begun ? came - begun : 0);
    const bool taking = before % 2 != 0 || takes.load(std::memory_order_acquire) != before;
    if (!taking || isForked()) return pending;
    if (looks < kLooksBeforeYield) {
      cpuRelax();
    } else {
      std::this_thread::yield();  // the loop may wait for our processor
    }
  }
}

void EventLoop::Parts::takeInbox() {
  if (closed) return;
  const Inbox::Taken taken = takeCounted([this] { return in.inbox.takeOpen(); });
  runList.append(taken.chain);

  stream.looked(taken.userTasks, waitEnded, real && !byHand && io->registrations() == 0);
  const bool behind = stream.isBehind();
  if (behind != in.behind.load(std::memory_order_relaxed)) {
    in.behind.store(behind, std::memory_order_relaxed);
  }
}

[[gnu::always_inline]] inline void EventLoop::Parts::runUserTask(TaskNode* node, const char* what) {
  unreserve();
  noteBegin(node->task.type());
  try {
    node->task();
  } catch (...) {
    taskFailed(node->task, what);
  }
  if (!node->task.isTrivial()) node->task.reset();
  used.add(node, in.inbox.pool());
}

void EventLoop::Parts::runNode(TaskNode* node) {
  if (__builtin_expect(node->kind() == TaskNode::user, 1)) return runUserTask(node, "task");
  runOwnNode(node);
}

// Counts as begun, though nobody had to wait for room.
void EventLoop::Parts::runHook(Task& task, const char* what) {
  othersBegun.store(othersBegun.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  noteBegin(task.type());
  try {
    task();
  } catch (...) {
    taskFailed(task, what);
  }
  task.reset();
}

[[gnu::noinline]] void EventLoop::Parts::runOwnNode(TaskNode* node) {
  const std::uintptr_t kind = node->kind();
  if ((kind & TaskNode::timer) != 0) {
    TimerNode& timer = TimerNode::of(*node);
    if ((kind & TaskNode::arm) != 0) {
      timers.adopt(timer);
    } else {
      runTimer(timer);
    }
    return;
  }
  if ((kind & TaskNode::tail) != 0) {
    tail.append(node);
    return;
  }
  if ((kind & (TaskNode::borrowed | TaskNode::probe)) != 0) {
    node->task();  // does not throw
    if ((kind & TaskNode::probe) != 0) used.add(node, in.inbox.pool());
    return;
  }
  runHook(node->task, "task");
  used.add(node, in.inbox.pool());
}

[[gnu::noinline]] void EventLoop::Parts::taskFailed(Task& task, const char* what) noexcept {
  figures.failures.add();
  log(LogLevel::warn, "loop", loopName, ": a ", what,
      " threw: ", Error::fromCurrentException(what).message(), " (", readableName(*task.type()),
      ")");
}

// A phase runs at most what was there when it began; what tasks post waits for the next turn.
void EventLoop::Parts::runTasks(std::int64_t ioNanos, bool hadIo) {
  // What is there comes first anyway; but due timers must not always come before what was posted.
  if ((runList.empty() || !timers.isEmpty()) && (stream.isOn() || !in.inbox.isEmpty())) {
    takeInbox();
  }
  if (!timers.isEmpty()) runList.append(timers.takeDue(real ? waitEnded : now()));
  const TaskNode* last = runList.last;
  if (last == nullptr) return callbackEnded();
  const int ratio = ioRatio.load(std::memory_order_relaxed);
  const bool limited = ratio != 100;
  const std::int64_t end =
      hadIo ? saturatingAdd(waitEnded, ioNanos * (100 - ratio) / ratio) : waitEnded;
  std::size_t ran = 0;
  while (TaskNode* node = runList.popFront()) {
    if (!runList.empty()) internal::prefetchForWrite(runList.ahead(internal::kNodesAhead));
    const bool wasLast = node == last;
    if (__builtin_expect(node->kind() == TaskNode::user, 1)) {
      runUserTask(node, "task");
    } else {
      runOwnNode(node);
    }
    ++ran;
    if (wasLast) break;
    if (ran % kTasksPerBatch != 0) continue;
    callbackEnded();
    if (limited && (hadIo ? now() >= end : othersWait())) break;
  }
  callbackEnded();
}

// False if the next turn would go on with these tasks anyway.
bool EventLoop::Parts::othersWait() const noexcept {
  return strategy != nullptr || byHand || !timers.isEmpty() || !tail.empty() ||
         io->registrations() != 0;
}

// For the end: what is there now, and the tail tasks.
void EventLoop::Parts::runBatch() {
  if (stream.isOn() || !in.inbox.isEmpty()) takeInbox();
  const TaskNode* last = runList.last;
  while (TaskNode* node = runList.popFront()) {
    const bool wasLast = node == last;
    runNode(node);
    if (wasLast) break;
  }
  callbackEnded();
  runTail();
}

void EventLoop::Parts::callbackFailed(const std::type_info& what) noexcept {
  figures.failures.add();
  log(LogLevel::error, "loop", loopName,
      ": a callback threw: ", Error::fromCurrentException("callback").message(), " (",
      readableName(what), ")");
}

void EventLoop::Parts::runTimer(TimerNode& timer) {
  const std::int64_t late = now() - timer.deadline();
  const std::uint64_t before = progress.load(std::memory_order_relaxed);
  const std::uint64_t othersBefore = othersBegun.load(std::memory_order_relaxed);
  othersBegun.store(othersBefore + 1, std::memory_order_relaxed);
  noteBegin(timer.node().task.type());
  if (!timers.run(timer, *time)) {
    progress.store(before, std::memory_order_release);
    othersBegun.store(othersBefore, std::memory_order_relaxed);
    return;
  }
  figures.timers.add();
  figures.timerLateness.record(late);
  if (late > kLateNanos) figures.lateTimers.add();
}

// Tail tasks added by a tail task wait for the next turn.
void EventLoop::Parts::runTail() {
  TaskChain batch = std::exchange(tail, {});
  while (TaskNode* node = batch.popFront()) {
    runUserTask(node, "tail task");
  }
  callbackEnded();
}

}  // namespace millrace
