// SPDX-License-Identifier: Apache-2.0
//
// What the load generators share: their flags, the run of messages, and the rows that they print.
#pragma once

#include "stream_load.h"

#include <functional>
#include <string_view>
#include <utility>

namespace bench {

/// The command line: flags with a value each, or without one.
class Flags {
 public:
  template <class T>
  Flags& value(std::string_view name, T& into) {
    known_.push_back({name, true, [&into](const char* text) {
                        if constexpr (std::is_floating_point_v<T>)
                          into = static_cast<T>(std::atof(text));
                        else
                          into = static_cast<T>(std::strtoull(text, nullptr, 10));
                      }});
    return *this;
  }
  Flags& text(std::string_view name, std::function<void(const char*)> take) {
    known_.push_back({name, true, std::move(take)});
    return *this;
  }
  Flags& on(std::string_view name, bool& into) {
    known_.push_back({name, false, [&into](const char*) { into = true; }});
    return *this;
  }

  void parse(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const Flag* flag = find(argv[i]);
      if (flag == nullptr || (flag->hasValue && i + 1 == argc)) wrongUse();
      flag->take(flag->hasValue ? argv[++i] : nullptr);
    }
  }

  [[noreturn]] static void wrongUse() {
    std::fprintf(stderr, "load: wrong use, see the top of load.cc\n");
    std::exit(2);
  }

 private:
  struct Flag {
    std::string_view name;
    bool hasValue;
    std::function<void(const char*)> take;
  };
  const Flag* find(std::string_view argument) const {
    for (const Flag& each : known_) {
      if (argument.starts_with("--") && argument.substr(2) == each.name) return &each;
    }
    return nullptr;
  }

  std::vector<Flag> known_;
};

/// What every load can be told.
struct LoadOptions {
  StreamShape shape;
  ServerCpu server;
  double seconds = 0;
  double warm = 0;
  uint64_t messages = 0;
  bool hold = false;

  Flags flags() {
    Flags made;
    made.value("port", shape.port)
        .value("connections", shape.connections)
        .value("size", shape.size)
        .value("pipeline", shape.pipeline)
        .text("server", [this](const char* text) { server = ServerCpu(text); })
        .value("seconds", seconds)
        .value("warm", warm)
        .value("messages", messages)
        .on("hold", hold);
    return made;
  }
  /// `others`: how many ways to run that only this load knows were asked for.
  void check(int others) const {
    const bool isWhole =
        shape.port != 0 && shape.connections != 0 && shape.size != 0 && shape.pipeline != 0;
    if (!isWhole || (seconds > 0) + (messages > 0) + hold + others != 1) Flags::wrongUse();
  }
};

inline int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

inline void printFigures(uint64_t count, int64_t ns, int64_t cpuNs, const Delays& delays,
                         const ServerCpu& server) {
  emit("messages", static_cast<double>(count));
  emit("rate", static_cast<double>(count) / (static_cast<double>(ns) / 1e9));
  emit("p50_us", delays.micros(50));
  emit("p99_us", delays.micros(99));
  if (!server.watched()) return;
  emit("cpu_ns", static_cast<double>(cpuNs) / static_cast<double>(count));
  emit("busy", static_cast<double>(cpuNs) / static_cast<double>(ns));
}

/// Until standard input ends.
inline void holdOn() {
  std::puts("holding");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

template <class Load>
typename Load::Plan planOf(const LoadOptions& options) {
  typename Load::Plan plan;
  plan.warmNs = nanoseconds(options.warm);
  plan.ns = nanoseconds(options.seconds);
  if (options.messages > 0) plan.perConnection = options.messages;
  return plan;
}

template <class Load>
void runMessages(const LoadOptions& options, Load& load) {
  const auto figures = load.run(planOf<Load>(options), options.server);
  printFigures(figures.messages, figures.ns, figures.cpuNs, load.delays(), options.server);
}

}  // namespace bench
