// SPDX-License-Identifier: Apache-2.0
// Event loops at work: tasks from several threads, timers, a watched descriptor, and the loops'
// figures once a second. Ctrl-C stops it gracefully. ./dev run starts it; --help lists the flags.
#include <millrace/millrace.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/fd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace millrace;
using namespace std::chrono_literals;

namespace {

constexpr const char* kHelp =
    "usage: loop_demo [flags]\n"
    "  --loops N     how many loops (default 0: twice the processors)\n"
    "  --io NAME     automatic, epoll, uring, poll or parking (default automatic)\n"
    "  --seconds N   stop after N seconds (default: run until Ctrl-C)\n"
    "  --quiet       no figures\n"
    "  --help        this text\n";

struct Settings {
  int loops = 0;
  int seconds = 0;
  std::string io = "automatic";
  bool quiet = false;
  bool help = false;
};

int toNumber(const std::string& text) {
  int number = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ptr == text.data() + text.size() && number >= 0) return number;
  throw std::invalid_argument("\"" + text + "\" is not a number of 0 or more");
}

Settings parse(const std::vector<std::string>& words) {
  Settings settings;
  auto word = words.begin();
  const auto value = [&] {
    const std::string& flag = *word;
    if (++word == words.end()) throw std::invalid_argument(flag + " needs a value");
    return *word;
  };
  const std::map<std::string, std::function<void()>> flags{
      {"--loops", [&] { settings.loops = toNumber(value()); }},
      {"--seconds", [&] { settings.seconds = toNumber(value()); }},
      {"--io", [&] { static_cast<void>(io::byName(settings.io = value())); }},  // checks the name
      {"--quiet", [&] { settings.quiet = true; }},
      {"--help", [&] { settings.help = true; }}};
  for (; word != words.end(); ++word) {
    const auto flag = flags.find(*word);
    if (flag == flags.end()) throw std::invalid_argument("unknown flag " + *word);
    flag->second();
  }
  return settings;
}

unsigned long long number(std::uint64_t value) { return value; }
double micros(std::uint64_t nanos) { return static_cast<double>(nanos) / 1e3; }

/// The figures of a group: on a terminal a table that is refreshed, else one line a time.
class Board {
 public:
  explicit Board(const EventLoopGroup& group) : group_(group), last_(group.size()) {
    if (!isScreen_) return;
    setLogSink([this](const LogRecord& record) {  // below the table, not across it
      std::lock_guard lock(mutex_);
      note_ = record.text;
    });
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() { setLogSink({}); }

  void print(std::uint64_t rings) {
    const LoopMetrics all = group_.metrics();
    ++seconds_;
    if (isScreen_) printTable();
    std::printf("%3d s: %llu tasks, %llu timers, %llu events, %llu wakeups, %llu rings of a bell\n",
                seconds_, number(all.tasks), number(all.timers), number(all.ioEvents),
                number(all.wakeups), number(rings));
    std::fflush(stdout);
  }

 private:
  void printTable() {
    std::printf("\033[H\033[J%-11s %9s %8s %8s %9s %6s %12s %12s\n", "loop", "tasks/s", "timers/s",
                "events/s", "wakeups/s", "busy", "delay p50", "p99");
    std::size_t row = 0;
    for (const EventLoop& loop : group_) {
      const LoopMetrics now = loop.metrics();
      const LoopMetrics before = std::exchange(last_[row++], now);
      std::printf("%-11s %9llu %8llu %8llu %9llu %5.1f%% %9.1f us %9.1f us\n", loop.name().c_str(),
                  number(now.tasks - before.tasks), number(now.timers - before.timers),
                  number(now.ioEvents - before.ioEvents), number(now.wakeups - before.wakeups),
                  static_cast<double>(now.busyNanos - before.busyNanos) / 1e7,
                  micros(now.taskDelay.percentile(0.5)), micros(now.taskDelay.percentile(0.99)));
    }
    std::lock_guard lock(mutex_);
    std::printf("\n%s\n", note_.c_str());
  }

  const EventLoopGroup& group_;
  std::vector<LoopMetrics> last_;
  const bool isScreen_ = ::isatty(STDOUT_FILENO) == 1;
  int seconds_ = 0;
  std::mutex mutex_;
  std::string note_ = "Ctrl-C stops";  // guarded by mutex_
};

/// What nobody should do on a loop; the watchdog tells of it.
void grindForTooLong() {
  const Deadline end = Deadline::after(250ms);
  while (!end.isDue(Clock::real().nanos())) {
  }
}

int run(const Settings& settings) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  // Signals and figures have a loop of their own. It comes first: onSignal() blocks the signals for
  // all threads made later.
  Promise<void> stop(immediateExecutor());
  EventLoopGroup control(LoopOptions().loops(1).name("control").io(io::epoll()));
  for (const int signal : {SIGINT, SIGTERM}) {
    control.next().onSignal(signal, [&stop](int) { stop.trySuccess(); }).sync();
  }

  std::atomic<std::uint64_t> rings{0};
  std::atomic<std::uint64_t> work{0};
  const Fd bell = eventFd().orThrow();
  EventLoopGroup group(
      LoopOptions().loops(settings.loops).name("demo").io(io::byName(settings.io)).watchdog(100ms));
  EventLoop& first = *group.begin();
  std::printf("running %zu loops, %s; Ctrl-C stops\n", group.size(), first.ioType().name);
  std::fflush(stdout);

  for (EventLoop& loop : group) loop.scheduleAtFixedRate(10ms, 10ms, [&work] { ++work; });
  if (&first.ioType() != &io::parkingType) {  // an engine without I/O cannot watch
    const auto count = [&rings](int fd, std::uint32_t) { rings += eventRead(fd).orThrow(); };
    first.watch(bell.get(), kReadable, count).sync();
    first.scheduleAtFixedRate(5ms, 5ms, [&bell] { eventWrite(bell.get(), 1); });
  }
  first.schedule(500ms, grindForTooLong);

  std::vector<std::jthread> producers;
  for (int i = 0; i < 3; ++i) {
    producers.emplace_back([&group, &work](const std::stop_token& stopped) {
      while (!stopped.stop_requested()) {
        for (int n = 0; n < 200; ++n) group.execute([&work] { ++work; });
        std::this_thread::sleep_for(1ms);
      }
    });
  }

  {
    Board board(group);
    if (!settings.quiet) control.scheduleAtFixedRate(1s, 1s, [&] { board.print(rings.load()); });
    if (settings.seconds > 0) {
      control.schedule(std::chrono::seconds(settings.seconds), [&stop] { stop.trySuccess(); });
    }
    stop.future().sync();
    control.shutdownGracefully().sync();
  }
  producers.clear();  // asks them to stop and joins them
  const ShutdownReport report = group.shutdownGracefully().get();
  std::printf("stopped: %llu tasks ran, %zu timers cancelled, %zu watches closed%s\n",
              number(group.metrics().tasks), report.timersCancelled, report.watchesClosed,
              report.timedOut ? ", time ran out" : "");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  try {
    settings = parse({argv + 1, argv + argc});
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "loop_demo: %s\n%s", e.what(), kHelp);
    return 2;
  }
  if (settings.help) return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
  try {
    return run(settings);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "loop_demo: %s\n", e.what());
    return 1;
  }
}
