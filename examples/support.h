// SPDX-License-Identifier: Apache-2.0
// What the examples share: flags, the limit of open files, and how a server runs until it is told to
// stop. The examples themselves show the library.
#pragma once

#include <millrace/millrace.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <pthread.h>
#include <string>
#include <string_view>
#include <sys/resource.h>

namespace example {

struct Flags {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string io = "automatic";
  int loops = 0;
  bool quiet = false;
};

/// Gets the name and the value of a flag that the example has of its own; false if it has none such.
using OwnFlag = std::function<bool(std::string_view name, const std::string& value)>;
/// The same for a flag that has no value.
using OwnSwitch = std::function<bool(std::string_view name)>;

[[noreturn]] inline void wrongUse(const std::string& what, const char* usage) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), usage);
  std::exit(2);
}

inline int toNumber(const std::string& text, int most, const char* usage) {
  int number = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ptr != text.data() + text.size() || number < 0 || number > most) {
    wrongUse("\"" + text + "\" is not a number of 0 to " + std::to_string(most), usage);
  }
  return number;
}

/// Ends the program with 2 for a wrong flag, with 0 for --help.
inline Flags parseFlags(int argc, char** argv, const char* usage, const OwnFlag& own = {},
                        const OwnSwitch& ownSwitch = {}) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (name == "--quiet") {
      flags.quiet = true;
      continue;
    }
    if (ownSwitch && ownSwitch(name)) continue;
    if (i + 1 == argc) wrongUse(std::string(name) + " needs a value, or is no flag", usage);
    const std::string value = argv[++i];
    if (name == "--host") {
      flags.host = value;
    } else if (name == "--port") {
      flags.port = static_cast<std::uint16_t>(toNumber(value, 65535, usage));
    } else if (name == "--io") {
      flags.io = value;
    } else if (name == "--loops") {
      flags.loops = toNumber(value, 4096, usage);
    } else if (!own || !own(name, value)) {
      wrongUse("no flag is called " + std::string(name), usage);
    }
  }
  return flags;
}

/// First in main(): the signals that end the program are taken by waitForStop() alone, and as many
/// files may be open as the system allows.
inline void begin() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

/// Until Ctrl-C, or SIGTERM.
inline void waitForStop() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  int signal = 0;
  sigwait(&stop, &signal);
}

/// The group that the flags ask for. The blocking engine has a loop for each connection.
inline millrace::EventLoopGroup makeGroup(const Flags& flags) {
  return millrace::EventLoopGroup(flags.io == "blocking" ? 0 : flags.loops,
                                  millrace::io::byName(flags.io));
}

/// "listening on 127.0.0.1:8007 (1 loop, epoll)", flushed.
inline void announce(const millrace::SocketAddress& address, const millrace::EventLoopGroup& group,
                     const Flags& flags) {
  const std::size_t loops = group.size();
  // What it is, not what was asked for: io_uring may be forbidden. A group on demand has no loops yet.
  const std::string engine = loops == 0 ? flags.io : group.begin()->ioType().name;
  std::printf("listening on %s (%s, %s)\n", address.toString().c_str(),
              engine == "blocking"
                  ? "a loop for each connection"
                  : (std::to_string(loops) + (loops == 1 ? " loop" : " loops")).c_str(),
              engine.c_str());
  std::fflush(stdout);
}

/// Runs `program`; says on standard error what went wrong, and gives the exit code.
inline int run(const std::function<void()>& program) {
  try {
    begin();
    program();
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}

}  // namespace example
