// SPDX-License-Identifier: Apache-2.0
// The explorer: runs a small concurrent scenario under every schedule that can matter and reports
// the first schedule that goes wrong. A stateless model checker for code written with
// millrace/base/atomic.h.
//
//   Result r = explore({}, [](Execution& run) {
//     auto& s = run.make<State>();                     // fresh for every execution
//     run.thread("producer", [&s] { s.data.write() = 1; s.flag.store(1, std::memory_order_release);
//     }); run.thread("consumer", [&s] { if (s.flag.load(std::memory_order_acquire))
//     use(s.data.read()); }); run.finally([&s] { EXPLORE_CHECK(s.flag.load() == 1, "flag was set");
//     });
//   });
//   EXPECT_TRUE(r.ok()) << r;
//
// What is covered (DESIGN.md in this folder has the reasons):
//  - every interleaving of loads, read-modify-writes, sequentially consistent stores, mutex and
//  futex calls, and
//    every moment at which a relaxed or release store can leave its thread's store buffer (FIFO,
//    unbounded, own loads forward from it). That is x86-TSO.
//  - happens-before of C++20 by vector clocks: release/acquire, release sequences through
//  read-modify-writes,
//    fences, mutexes. An access to Plain data, or the destruction of any object, that is not
//    ordered is a race in whatever schedule it is seen, so too weak orders are found although no
//    load returns a value older than TSO.
//  - with Options::staleLoads, loads that return older values than that machine would, so that a
//  sequentially
//    consistent order weakened to acquire, release or relaxed is found.
//  - not covered: values out of nowhere (relaxed loads that see stores still to come); spurious
//  failures unless
//    asked for in Options; cpuRelax() loops that count their rounds give up only when nobody else
//    can move, unless Options::relax is kFree.
//
// Threads: one system thread; virtual threads share its thread-locals. One explore() at a time.
// The scenario must be deterministic except for explorer::choose().
#pragma once

#include "explorer_atomic.h"

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace millrace::explorer {

enum class Relax : uint8_t {
  kBlocks,  // cpuRelax waits for a change: for loops that spin until something happens
  kFree,    // cpuRelax does nothing: for loops that spin a fixed number of rounds
};

struct Options {
  /// Leave out schedules that differ only in the order of independent steps (partial order
  /// reduction with sleep sets). Off: every schedule, for checking the explorer itself.
  bool reduction = true;
  /// At most so many switches away from a thread that could go on; negative: no bound. A bound
  /// switches the reduction off, because the two do not combine soundly, and the result covers
  /// these schedules only.
  int preemptionBound = -1;
  /// Stop after so many executions, with Result::complete false; 0: no limit.
  uint64_t maxExecutions = 0;
  /// Steps of one execution after which it counts as endless.
  uint32_t maxSteps = 5000;
  /// Rounds of spinning with no change of memory, while nobody else can move, that count as a
  /// deadlock.
  uint32_t spinLimit = 100;
  /// Spurious failures of compare_exchange_weak, and spurious returns of futexWait, in one
  /// execution.
  int spuriousCasFailures = 0;
  int spuriousWakeups = 0;
  /// Loads of one execution that may return an older value where C++ allows it although a machine
  /// with store buffers would not: finds orders that are too weak on other machines. 0: none. See
  /// explorer_history.cc.
  int staleLoads = 0;
  Relax relax = Relax::kBlocks;
};

enum class Failure : uint8_t {
  kNone,
  kCheck,            // EXPLORE_CHECK
  kRace,             // accesses without happens-before
  kUseAfterDestroy,  // an object was used after its destructor
  kDeadlock,         // nobody can move
  kStepLimit,        // an execution does not end
  kException,        // a thread threw
  kMisuse,           // unlock of a mutex held by someone else and the like
  kNondeterminism,   // the scenario did not repeat itself
};

const char* toString(Failure failure) noexcept;

struct Result {
  Failure failure = Failure::kNone;
  std::string message;
  std::string schedule;          // one line per step of the failing execution
  std::vector<uint8_t> choices;  // the same for replay()
  bool complete = false;         // everything that the options ask for was explored
  uint64_t executions = 0;       // complete runs of the scenario
  uint64_t redundant = 0;        // of these, runs that turned out to repeat an explored one
  uint64_t states = 0;           // distinct points of decision
  uint64_t steps = 0;            // all steps made, repeated ones too
  uint32_t deepest = 0;          // steps of the longest execution
  double seconds = 0;

  bool ok() const noexcept { return failure == Failure::kNone && complete; }
  std::string summary() const;
};

std::ostream& operator<<(std::ostream& out, const Result& result);

/// What a scenario builds for one execution.
class Execution {
 public:
  /// Makes shared state that lives until the final checks are over.
  template <class T, class... Args>
  T& make(Args&&... args) {
    auto object = std::make_shared<T>(std::forward<Args>(args)...);
    T& state = *object;
    objects_.push_back(std::move(object));
    return state;
  }

  /// Adds a virtual thread; at most four. `name` must be a literal.
  void thread(const char* name, std::function<void()> body);

  /// Runs after all threads have ended and their stores have arrived.
  void finally(std::function<void()> check);

 private:
  friend class Engine;
  struct Body {
    const char* name;
    std::function<void()> run;
  };
  void clear();

  std::vector<std::shared_ptr<void>> objects_;
  std::vector<Body> threads_;
  std::vector<std::function<void()>> checks_;
};

using Scenario = std::function<void(Execution&)>;

/// Explores until the first failure or the end.
Result explore(const Options& options, const Scenario& scenario);

/// Runs the one schedule that `choices` of a Result describes.
Result replay(const Options& options, const Scenario& scenario,
              const std::vector<uint8_t>& choices);

/// Ends the running execution as failed; in no execution, ends the process.
[[noreturn]] void failCheck(const std::string& text, Site site = Site::current());

}  // namespace millrace::explorer

#define EXPLORE_CHECK(condition, text)                                           \
  do {                                                                           \
    if (!(condition)) ::millrace::explorer::failCheck(text " (" #condition ")"); \
  } while (false)
