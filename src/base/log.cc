// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/log.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <unistd.h>
#include <utility>
#include <vector>

namespace millrace {

namespace {

constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info", "warn", "error", "off"};
constexpr std::array<const char*, 5> kColours{"\033[2m", "\033[36m", "\033[32m", "\033[33m",
                                              "\033[31m"};

thread_local const char* tlsThread = "";
thread_local bool tlsWriting = false;

LogLevel parseLevel(std::string_view word) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == word) return static_cast<LogLevel>(i);
  }
  throw std::invalid_argument("log filter: \"" + std::string(word) +
                              "\" is no level; use trace, debug, info, warn, error or off");
}

struct Filter {
  LogLevel general = LogLevel::info;
  std::vector<std::pair<std::string, LogLevel>> layers;

  static Filter parse(std::string_view text) {
    Filter filter;
    while (!text.empty()) {
      const auto comma = text.find(',');
      const std::string_view word = text.substr(0, comma);
      text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
      const auto equals = word.find('=');
      if (equals == std::string_view::npos) {
        filter.general = parseLevel(word);
      } else {
        filter.layers.emplace_back(word.substr(0, equals), parseLevel(word.substr(equals + 1)));
      }
    }
    return filter;
  }

  LogLevel lowest() const noexcept {
    LogLevel least = general;
    for (const auto& [layer, level] : layers) least = level < least ? level : least;
    return least;
  }
};

// The one global state besides the global executor. Never destroyed: see Clock::real().
class Log {
 public:
  static Log& get() {
    static Log& log = *new Log;
    return log;
  }

  Log() {
    const char* text = std::getenv("MILLRACE_LOG");
    if (text == nullptr) return;
    try {
      set(Filter::parse(text));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "millrace: MILLRACE_LOG ignored: %s\n", e.what());
    }
  }

  void set(Filter filter) {
    std::lock_guard lock(mutex_);
    filter_ = std::move(filter);
    lowest_.store(filter_.lowest(), std::memory_order_relaxed);
  }

  LogSink swapSink(LogSink sink) {
    std::lock_guard lock(mutex_);
    return std::exchange(sink_, std::move(sink));
  }

  bool enabled(LogLevel level, std::string_view layer) {
    if (level < lowest_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(mutex_);
    LogLevel wanted = filter_.general;
    for (const auto& [name, special] : filter_.layers) {
      if (name == layer) wanted = special;
    }
    return level >= wanted && level != LogLevel::off;
  }

  void write(const LogRecord& record) {
    std::lock_guard lock(mutex_);
    if (sink_) {
      sink_(record);
    } else {
      writeToStderr(record);
    }
  }

 private:
  void writeToStderr(const LogRecord& record) const {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    tm parts{};
    ::localtime_r(&now.tv_sec, &parts);
    char stamp[16];
    std::strftime(stamp, sizeof stamp, "%H:%M:%S", &parts);
    std::string line(stamp);
    const std::string millis = std::to_string(1000 + now.tv_nsec / 1'000'000);
    line.append(".").append(millis, 1).append(" ");
    const auto level = static_cast<std::size_t>(record.level);
    if (colour_) line += kColours[level];
    line.append(kNames[level]).append(5 - kNames[level].size(), ' ');
    if (colour_) line += "\033[0m";
    line += ' ';
    if (!record.thread.empty()) line.append("[").append(record.thread).append("] ");
    line.append(record.layer).append(": ").append(record.text).append("\n");
    // One write per line keeps lines whole when several processes share the terminal.
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  }

  std::atomic<LogLevel> lowest_{LogLevel::info};
  const bool colour_ = ::isatty(STDERR_FILENO) == 1;
  std::mutex mutex_;
  Filter filter_;  // guarded by mutex_
  LogSink sink_;   // guarded by mutex_
};

}  // namespace

std::string_view logLevelName(LogLevel level) noexcept {
  return kNames[static_cast<std::size_t>(level)];
}

LogSink setLogSink(LogSink sink) { return Log::get().swapSink(std::move(sink)); }

void setLogFilter(std::string_view filter) { Log::get().set(Filter::parse(filter)); }

bool logEnabled(LogLevel level, std::string_view layer) noexcept {
  // A sink that logs would wait for the lock it runs under.
  return !tlsWriting && Log::get().enabled(level, layer);
}

void setLogThread(const char* name) noexcept { tlsThread = name; }

namespace internal {

void writeLog(LogLevel level, std::string_view layer, std::string_view text) noexcept {
  tlsWriting = true;
  try {
    Log::get().write({level, layer, tlsThread, text});
  } catch (...) {  // NOLINT: a log that fails must not take the program with it
  }
  tlsWriting = false;
}

}  // namespace internal

}  // namespace millrace
