// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/sys/thread.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace millrace {

namespace {

constexpr std::size_t kLeastPendingTasks = 16;

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

}  // namespace

LoopOptions::LoopOptions() {
  values_.rejection = rejectByThrowing();
  values_.chooser = roundRobin();
}

LoopOptions& LoopOptions::loops(int count) {
  if (count < 0) {
    refuse("loops(" + std::to_string(count) +
           "): a group cannot have a negative number of loops; use 0 for the default");
  }
  values_.loops = count;
  return *this;
}

LoopOptions& LoopOptions::name(std::string value) {
  values_.name = std::move(value);
  return *this;
}

LoopOptions& LoopOptions::io(IoFactory factory) {
  if (factory.type == nullptr || !factory.make) {
    refuse("io(): the engine factory is empty; use io::epoll(), io::poll() or io::parking()");
  }
  values_.io = std::move(factory);
  return *this;
}

LoopOptions& LoopOptions::ioRatio(int percent) {
  if (percent < 1 || percent > 100) {
    refuse("ioRatio(" + std::to_string(percent) +
           "): must be 1 to 100; 100 sets tasks no time limit");
  }
  values_.ioRatio = percent;
  return *this;
}

LoopOptions& LoopOptions::maxPendingTasks(std::size_t count) {
  values_.maxPendingTasks = count < kLeastPendingTasks ? kLeastPendingTasks : count;
  return *this;
}

LoopOptions& LoopOptions::rejection(RejectionHandler handler) {
  if (!handler) refuse("rejection(): the handler is empty; use rejectByThrowing()");
  values_.rejection = std::move(handler);
  return *this;
}

LoopOptions& LoopOptions::strategy(SelectStrategyFactory factory) {
  if (!factory) refuse("strategy(): the factory is empty; use defaultSelectStrategy()");
  values_.strategy = std::move(factory);
  return *this;
}

LoopOptions& LoopOptions::chooser(ChooserFactory factory) {
  if (!factory) refuse("chooser(): the factory is empty; use roundRobin()");
  values_.chooser = std::move(factory);
  return *this;
}

LoopOptions& LoopOptions::clock(Clock& value) {
  values_.clock = &value;
  return *this;
}

LoopOptions& LoopOptions::executor(Executor& value) {
  if (&value == &immediateExecutor()) {
    refuse(
        "executor(): the immediate executor would run the loop inside the call that starts it; "
        "give "
        "one that has threads, a ThreadPool for example");
  }
  values_.executor = &value;
  return *this;
}

LoopOptions& LoopOptions::threadFactory(LoopThreadFactory factory) {
  if (!factory) refuse("threadFactory(): the factory is empty");
  values_.threadFactory = std::move(factory);
  return *this;
}

LoopOptions& LoopOptions::pinTo(std::vector<int> cpus) {
  values_.cpus = std::move(cpus);
  return *this;
}

LoopOptions& LoopOptions::priority(int nice) {
  if (nice < -20 || nice > 19) {
    refuse("priority(" + std::to_string(nice) + "): nice values go from -20 to 19");
  }
  values_.nice = nice;
  values_.setsNice = true;
  return *this;
}

LoopOptions& LoopOptions::spin(Duration duration) {
  if (duration.count() < 0) refuse("spin(): the time must not be negative");
  values_.spin = duration;
  return *this;
}

LoopOptions& LoopOptions::rebuildThreshold(int count) {
  values_.rebuildThreshold = count;
  return *this;
}

LoopOptions& LoopOptions::errorPause(Duration duration) {
  if (duration.count() < 0) refuse("errorPause(): the time must not be negative");
  values_.errorPause = duration;
  return *this;
}

LoopOptions& LoopOptions::watchdog(Duration threshold) {
  if (threshold.count() < 0) refuse("watchdog(): the threshold must not be negative");
  values_.watchdog = threshold;
  return *this;
}

int defaultLoopCount() {
  if (const char* text = std::getenv("MILLRACE_EVENT_LOOP_THREADS"); text != nullptr) {
    const std::string_view word(text);
    int count = 0;
    const auto end = std::from_chars(word.data(), word.data() + word.size(), count);
    if (end.ec == std::errc() && end.ptr == word.data() + word.size() && count > 0) return count;
    log(LogLevel::warn, "loop", "MILLRACE_EVENT_LOOP_THREADS=\"", word,
        "\" ignored: it must be a number of 1 or more");
  }
  return 2 * availableCpus();
}

}  // namespace millrace
