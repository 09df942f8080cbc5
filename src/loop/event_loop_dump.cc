// SPDX-License-Identifier: Apache-2.0
// What a loop is doing, in words.
#include "loop/event_loop_parts.h"
#include "loop/readable_name.h"

#include <string>

namespace millrace {

namespace {

const char* stateName(EventLoop::State state) noexcept {
  switch (state) {
    case EventLoop::State::notStarted:
      return "not started";
    case EventLoop::State::started:
      return "started";
    case EventLoop::State::suspending:
      return "suspending";
    case EventLoop::State::suspended:
      return "suspended";
    case EventLoop::State::shuttingDown:
      return "shutting down";
    case EventLoop::State::shutdown:
      return "shut down";
    case EventLoop::State::terminated:
      return "terminated";
  }
  return "?";
}

std::string millis(std::int64_t nanos) {
  const std::int64_t tenths = nanos / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
}

}  // namespace

// Timers and watches belong to the loop thread; the first line can be read from anywhere.
std::string EventLoop::Parts::describeInLoop() const {
  std::string text;
  const std::int64_t moment = time->nanos();
  timers.forEach([&](const TimerNode& timer) {
    text += "  timer in " + millis(timer.deadline() - moment) +
            (timer.repeat() == TimerNode::Repeat::no ? "" : ", repeating");
    // Asked once: another thread may cancel it meanwhile.
    if (const std::type_info* type = timer.task().type()) text += ": " + readableName(*type);
    text += "\n";
  });
  if (upper != nullptr) {
    std::vector<std::string> lines;
    upper->describe(lines);
    for (const std::string& line : lines) text += "  " + line + "\n";
  }
  if (FdWatch* watches = io->fdWatch(); watches != nullptr && !closed) {
    std::vector<std::string> lines;
    watches->describe(lines);
    for (const std::string& line : lines) text += "  " + line + "\n";
  }
  return text;
}

std::string EventLoop::dump() const {
  Parts& parts = *parts_;
  const LoopMetrics figures = metrics();
  const State now = state();
  std::string text = name() + " (" + ioType().name + "): " + stateName(now) + ", " +
                     std::to_string(figures.pendingTasks) + " tasks pending, " +
                     std::to_string(figures.registrations) + " descriptors, " +
                     std::to_string(figures.turns) + " turns, " + std::to_string(figures.tasks) +
                     " tasks run\n";
  if (inEventLoop()) return text + parts.describeInLoop();
  const std::int64_t began = parts.turnBegan.load(std::memory_order_relaxed);
  if (now == State::started || now == State::shuttingDown) {
    Promise<std::string> promise(immediateExecutor());
    Future<std::string> answer = promise.future();
    Task ask = [&parts, done = std::move(promise), alive = Ref<const EventLoop>(this)] {
      done.trySuccess(parts.describeInLoop());
    };
    if (parts.postOwn(ask) && answer.await(Deadline::after(std::chrono::milliseconds(100)))) {
      return text + answer.get();
    }
    text += "  does not answer";
    const std::type_info* running = parts.running.load(std::memory_order_relaxed);
    if (began != 0) {
      text += "; its turn has lasted " + millis(Clock::real().nanos() - began);
      if (running != nullptr) text += ", running " + readableName(*running);
    }
    text += "\n";
  }
  return text;
}

}  // namespace millrace
