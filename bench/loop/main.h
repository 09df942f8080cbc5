// SPDX-License-Identifier: Apache-2.0
//
// The command line of a bench program: `bench_loop_<peer> <scenario> [numbers]`. What a peer does
// not offer is answered with exit code 3, which the driver shows as a dash.
#pragma once

#include "static_scenarios.h"

#include <string_view>

/// Defined by alloc_count.cc; absent (null) in the programs that are timed.
extern "C" uint64_t benchAllocations() __attribute__((weak));

namespace bench {

inline constexpr int kNotOffered = 3;

template <class Peer>
concept Posts = requires {
  requires Peer::kPosts;
};
template <class Peer>
concept Timers = requires {
  typename Peer::Loop::Timer;
};
template <class Peer>
concept Spins = requires {
  Peer::kSpin;
};
template <class Peer>
concept HandDriven = requires {
  typename Peer::Driven;
};
template <class Peer>
concept HasIdle = requires {
  typename Peer::Idle;
};
template <class Peer>
concept HasIdleGroup = requires {
  typename Peer::IdleGroup;
};

/// `Peer` names the types: Loop, and where it has them Driven, Idle, IdleGroup, kSpin.
template <class Peer>
int runScenario(std::string_view name, const std::vector<int64_t>& args) {
  using Loop = typename Peer::Loop;
  const auto arg = [&](size_t i) { return i < args.size() ? args[i] : 0; };
  const auto size = [&](size_t i) { return static_cast<size_t>(arg(i)); };
  const auto number = [&](size_t i) { return static_cast<int>(arg(i)); };

  if (name == "asleep") return asleep<Loop>(number(0), arg(1)), 0;
  if (name == "idle") return idle<Loop>(arg(0)), 0;
  if constexpr (Posts<Peer>) {
    if (name == "posts") return posts<Loop>(number(0), arg(1)), 0;
    if (name == "awake") return awake<Loop>(number(0)), 0;
    if (name == "burst") return burst<Loop>(number(0), size(1)), 0;
    if (name == "self") return self<Loop>(size(0)), 0;
    if (name == "pingpong") return pingPong<Loop>(size(0), "trip"), 0;
    if (name == "allocations" && benchAllocations != nullptr)
      return allocations<Loop>(size(0), benchAllocations), 0;
    if (name == "memory_started") return memoryStarted<Loop>(size(0)), 0;
  }
  if constexpr (Spins<Peer>) {
    if (name == "pingpong_spin") return pingPong<Loop>(size(0), "spin", Peer::kSpin), 0;
  }
  if constexpr (Timers<Peer>) {
    if (name == "timers") return timers<Loop>(size(0)), 0;
    if (name == "lateness") return lateness<Loop>(size(0)), 0;
  }
  if constexpr (HandDriven<Peer>) {
    if (name == "instructions_post") return instructionsOfPosts<typename Peer::Driven>(size(0)), 0;
    if (name == "instructions_timer")
      return instructionsOfTimers<typename Peer::Driven>(size(0)), 0;
  }
  if constexpr (HasIdle<Peer>) {
    if (name == "memory_unstarted")
      return memoryUnstarted<typename Peer::Idle>(size(0), "unstarted_bytes"), 0;
  }
  if constexpr (HasIdleGroup<Peer>) {
    if (name == "memory_group")
      return memoryUnstarted<typename Peer::IdleGroup>(size(0), "group_bytes"), 0;
  }
  return kNotOffered;
}

template <class Peer>
int benchMain(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s scenario [numbers]\n", argv[0]);
    return 2;
  }
  std::vector<int64_t> args;
  for (int i = 2; i < argc; ++i) args.push_back(std::strtoll(argv[i], nullptr, 10));
  return runScenario<Peer>(argv[1], args);
}

}  // namespace bench
