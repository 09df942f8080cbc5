// SPDX-License-Identifier: Apache-2.0
#include "loop/end_executor.h"
#include "loop/event_loop_parts.h"

#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io.h>

#include <stdexcept>

namespace millrace {

namespace {

Ref<EndExecutor> endExecutorOf(const EventLoop& loop) {
  Ref<EndExecutor> made = makeRef<EndExecutor>();
  made->refuseWaitingOn(loop);
  return made;
}

}  // namespace

EventLoop::Parts::Parts(EventLoop& loop, const LoopOptions::Values& values, std::string loopTitle,
                        int loopIndex, bool drivenByHand)
    : self(loop),
      options(values),
      loopName(std::move(loopTitle)),
      index(loopIndex),
      byHand(drivenByHand),
      time(values.clock != nullptr ? values.clock : &Clock::real()),
      real(time->isReal()),
      forkGeneration((watchForForks(), currentForkGeneration())),
      terminated(*endExecutorOf(loop)),
      terminatedFuture(terminated.future()),
      timers(loop) {
  if (options.strategy) {
    strategy = options.strategy();
    if (!strategy) {
      throw std::invalid_argument(loopName + ": the select strategy factory gave nothing");
    }
  }
  io = (options.io.type != nullptr ? options.io : io::automatic()).make().orThrow();
  if (!io) throw std::invalid_argument(loopName + ": the engine factory gave nothing");
  ioRatio.store(options.ioRatio, std::memory_order_relaxed);
  stopNode.task = [this] { beginShutdown(); };
  // An exchange: a store could wait until after the loop has read the clock, and the mover's would
  // find it queued still. tests/interleave/production_tick_test.cc explores it.
  tickNode.task = [this] { tickQueued.exchange(false, std::memory_order_acq_rel); };
  if (!real) time->addListener(*this);
}

EventLoop::Parts::~Parts() {
  if (ClockListener::isLinked()) time->removeListener(*this);
}

EventLoop::EventLoop(const LoopOptions& options, std::string name, int index, bool handDriven)
    : parts_(std::make_unique<Parts>(*this, options.values(), std::move(name), index, handDriven)) {
}

// Runs when nobody refers to it any more: it has ended, or never had a thread, or (driven by hand,
// or in a forked child) nobody will drive it again.
EventLoop::~EventLoop() {
  Parts& parts = *parts_;
  ref();  // what runs now may take references again
  if (!isTerminated() && !parts.isForked()) parts.endAbandoned();
  parts.joinThread();
}

Ref<EventLoop> EventLoop::handDriven() { return handDriven(LoopOptions()); }

Ref<EventLoop> EventLoop::handDriven(const LoopOptions& options) {
  static Atomic<int> number{0};
  const auto& values = options.values();
  const int index = number.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::string group = values.name.empty() ? "hand" : values.name;
  return Ref<EventLoop>(
      new EventLoop(options, "mr-" + group + "-" + std::to_string(index), index - 1, true));
}

EventLoop* EventLoop::current() noexcept {
  // Pools set it, too.
  return const_cast<EventLoop*>(dynamic_cast<const EventLoop*>(internal::tlsCurrentExecutor));
}

bool EventLoop::waitsForItself() const noexcept {
  return inEventLoop() ||
         (parts_->byHand && parts_->driver.load(std::memory_order_relaxed) == currentThread());
}

std::size_t EventLoop::pendingTasks() const noexcept { return parts_->pendingTasks(); }

std::size_t EventLoop::load() const noexcept { return pendingTasks() + parts_->registrations(); }

void EventLoop::assertInEventLoop() const {
  if (inEventLoop()) return;
  const EventLoop* here = current();
  throw std::logic_error("this call belongs to the thread of " + name() + ", but came from " +
                         (here == nullptr ? std::string("a thread that is in no loop's turn")
                                          : "the thread of " + here->name()) +
                         "; use execute() or submit() to get there");
}

EventLoopGroup* EventLoop::parent() const noexcept {
  return parts_->group.load(std::memory_order_acquire);
}
const std::string& EventLoop::name() const noexcept { return parts_->loopName; }
std::int64_t EventLoop::threadId() const noexcept {
  return parts_->kernelThread.load(std::memory_order_relaxed);
}
Clock& EventLoop::clock() const noexcept { return *parts_->time; }

int EventLoop::ioRatio() const noexcept { return parts_->ioRatio.load(std::memory_order_relaxed); }

void EventLoop::setIoRatio(int percent) {
  LoopOptions().ioRatio(percent);  // checks
  parts_->ioRatio.store(percent, std::memory_order_relaxed);
}

const IoType& EventLoop::ioType() const noexcept { return parts_->io->type(); }

void EventLoop::rebuildSelector() {
  if (inEventLoop()) {
    parts_->rebuildAndTell("somebody asked for it");
  } else {
    execute([this] { parts_->rebuildAndTell("somebody asked for it"); });
  }
}

EventLoop::State EventLoop::state() const noexcept { return parts_->life.state(); }

bool EventLoop::isShuttingDown() const noexcept {
  // The loop itself changes its state later, when the request comes to its turn.
  return parts_->stopRequested.load(std::memory_order_acquire) || state() >= State::shuttingDown;
}

Future<ShutdownReport> EventLoop::terminationFuture() const { return parts_->terminatedFuture; }

IoHandler& EventLoop::io() const noexcept { return *parts_->io; }
std::uint64_t EventLoop::attachmentFigure(std::size_t index) const noexcept {
  return parts_->aboveFigures[index].get();
}
void EventLoop::becameIdle() {
  if (!parts_->onIdle) return;
  executeOwn([this] {
    if (parts_->registrations() == 0) parts_->onIdle(*this);
  });
}
AttributeMap& EventLoop::attributes() const noexcept { return parts_->attributes; }
LoopAttachment* EventLoop::attachment() const noexcept { return parts_->upper.get(); }

LoopMetrics EventLoop::metrics() const {
  const LoopFigures& figures = parts_->figures;
  LoopMetrics copy;
  copy.turns = figures.turns.get();
  copy.tasks = parts_->progress.load(std::memory_order_relaxed);
  copy.timers = figures.timers.get();
  copy.lateTimers = figures.lateTimers.get();
  copy.ioEvents = figures.ioEvents.get();
  copy.sleeps = figures.sleeps.get();
  copy.wakeups = figures.wakeups.get();
  copy.prematureReturns = figures.premature.get();
  copy.rebuilds = figures.rebuilds.get();
  copy.failures = figures.failures.get();
  copy.stalls = figures.stalls.load(std::memory_order_relaxed);
  copy.busyNanos = figures.busyNanos.get();
  copy.pendingTasks = pendingTasks();
  copy.registrations = parts_->registrations();
  copy.turnTime = figures.turnTime.snapshot();
  copy.taskDelay = figures.taskDelay.snapshot();
  copy.timerLateness = figures.timerLateness.snapshot();
  return copy;
}

}  // namespace millrace
