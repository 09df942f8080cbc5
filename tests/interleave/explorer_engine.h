// SPDX-License-Identifier: Apache-2.0
// The inside of the explorer: one object that runs a scenario again and again. See explorer.h and
// DESIGN.md.
//
// An agent is what the scheduler can choose: a virtual thread (0..3), which makes the operation it
// has announced, or the store buffer of a thread (4..7), which lets its oldest store reach memory.
//
//   explorer_engine.cc  fibers, announcing an operation, choosing the next agent, one execution
//   explorer_search.cc  depth-first search, partial order reduction, sleep sets
//   explorer_objects.cc objects by address, their lifetime, races
//   explorer_memory.cc  operations, store buffers, happens-before
//   explorer_history.cc loads that return an older value
//   explorer_trace.cc   the readable schedule
#pragma once

#include "explorer.h"
#include "fiber.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace::explorer {

namespace detail {

constexpr unsigned kMaxThreads = 4;
constexpr unsigned kMain = 4;  // setup and final checks, in the clocks of happens-before
constexpr unsigned kAgents = 8;

constexpr unsigned bit(unsigned agent) { return 1U << agent; }
constexpr unsigned threadOf(unsigned agent) { return agent % kMaxThreads; }
constexpr unsigned bufferOf(unsigned thread) { return thread + kMaxThreads; }
constexpr bool isBuffer(unsigned agent) { return agent >= kMaxThreads; }

/// File without directories, and line.
std::string siteText(Site site);

/// Vector clock, for happens-before (threads and main) and for the reduction (agents).
struct Clock {
  std::array<uint32_t, 8> at{};

  void join(const Clock& other) {
    for (size_t i = 0; i < at.size(); ++i) at[i] = std::max(at[i], other.at[i]);
  }
};

/// How an operation touches its object; two touches conflict if one writes what the other reads or
/// writes, or if both change the queue of futex waiters.
enum Touch : uint8_t { kNothing = 0, kRead = 1, kWrite = 2, kQueue = 4 };

constexpr bool conflict(unsigned a, unsigned b) {
  return ((a & kWrite) != 0 && (b & (kRead | kWrite)) != 0) ||
         ((b & kWrite) != 0 && (a & kRead) != 0) || (a & b & kQueue) != 0;
}

/// Operations that wait until the store buffer of their thread is empty.
constexpr bool drains(OpKind kind) {
  return kind != OpKind::kLoad && kind != OpKind::kResume && kind != OpKind::kRelax;
}

/// Everything the model knows about one Atomic, Plain or Mutex. Destroyed ones stay as tombstones.
struct Object {
  ObjectKind kind;
  bool dead;
  uint8_t writer;  // Plain: last writer. Others: who made it
  uint32_t writeEpoch;
  uint32_t version;                      // counts changes of the value
  uint64_t value;                        // Mutex: 0 free, else holder + 1
  Clock sync;                            // what an acquire of the current value learns
  Clock accessed;                        // last access of each thread
  Clock stepWrite, stepRead, stepQueue;  // clocks of the reduction
  std::array<Site, 5> sites;             // of the last access of each thread
  Site writeSite;
  std::array<uint32_t, 4> seenVersion, seenRound;  // what spinning threads wait for
  uint32_t lastWrite;                              // in writes_, with Options::staleLoads
  std::array<uint32_t, 4> floor, firstRead;        // what each thread knows of them
  const char* name;
};

/// A past value of an object, in modification order; only with Options::staleLoads.
struct Write {
  uint64_t value;
  uint32_t before;  // the write that it replaced
  uint32_t epoch;   // of the writer
  uint8_t writer;
  bool seqCst;
  Clock sync;
};

struct BufferedStore {
  uint32_t object;
  bool dropped;  // the storing thread destroyed the object in the meantime
  uint32_t epoch;
  uint64_t value;
  Clock sync;
  Clock cause;
  MemoryOrder order;
  ValueType type;
  Site site;
};

/// What a thread is about to do, then what it did.
struct Op {
  OpKind kind = OpKind::kFence;
  MemoryOrder order = std::memory_order_seq_cst;
  MemoryOrder failOrder = std::memory_order_relaxed;
  ValueType type = ValueType::kUnsigned;
  uint8_t touch = kNothing;
  bool ok = false;
  bool stale = false;
  uint32_t object = 0;
  uint64_t operand = 0;
  uint64_t expected = 0;
  uint64_t result = 0;
  int64_t deadline = kForever;
  Combine combine = nullptr;
  Site site;
};

struct ThreadState {
  const char* name = "";
  bool finished = true;
  bool queued = false;  // sleeps in futexWait
  bool woken = false;
  Op pending;
  Clock hb;            // happens-before
  Clock acquirable;    // seen by relaxed loads, for an acquire fence
  Clock releaseFence;  // clock of the last release fence
  Clock step;          // clock of the reduction: the thread
  Clock bufferStep;    // and its buffer
  std::vector<BufferedStore> buffer;
  size_t head = 0;             // first entry of `buffer` that is still there
  std::vector<uint32_t> seen;  // objects read since the last cpuRelax
  uint32_t round = 1;
  uint32_t fenceFloor = 0;  // writes before the last sequentially consistent fence

  bool buffered() const { return head < buffer.size(); }
};

/// One decision of the search.
struct Node {
  uint8_t chosen;
  uint8_t count;  // alternatives of choose(), 0 for a decision of the scheduler
  uint8_t enabled;
  uint8_t backtrack;  // to be explored
  uint8_t done;       // explored before `chosen`
  uint8_t sleep;      // explored elsewhere
};

/// A step of the current execution, for the reduction.
struct Event {
  uint8_t agent;
  uint8_t touch;
  bool forced;  // chosen because nothing else could move
  OpKind kind;
  uint32_t object;
  uint32_t count;  // number of this step among those of its agent
  uint32_t node;
  uint32_t seenBegin, seenEnd;  // kRelax: range in seenPool_
  Clock clock;
};

struct TraceLine {
  uint8_t agent;
  OpKind kind;
  MemoryOrder order;
  ValueType type;
  bool ok;
  bool stale;
  uint32_t object;
  uint64_t before, after;
  Site site;
};

}  // namespace detail

class Engine {
 public:
  Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  static Engine& instance();
  /// The engine if an execution is under way, else null.
  static Engine* active() noexcept { return active_; }

  Result explore(const Options& options, const Scenario& scenario,
                 const std::vector<uint8_t>* choices);

  // Calls from inside an execution.
  uint64_t perform(detail::Access& access);
  void created(const void* object, detail::ObjectKind kind, uint64_t value, Site site);
  void destroyed(const void* object, detail::ObjectKind kind, Site site);
  void plainAccess(const void* object, bool write, Site site);
  void relax(Site site);
  int futexWait(const void* object, detail::Cell cell, uint32_t expected, int64_t deadline,
                Site site);
  int futexWake(const void* object, detail::Cell cell, int count, Site site);
  void fence(MemoryOrder order, Site site);
  int choose(int count, Site site);
  void name(const void* object, const char* text);
  int64_t now() const { return now_; }
  unsigned current() const { return current_; }
  /// Ends the execution; the running fiber is left where it is.
  [[noreturn]] void fail(Failure failure, std::string message);

 private:
  using Object = detail::Object;
  using Op = detail::Op;

  // explorer_engine.cc
  void runOnce();
  void runMain();
  void runThread(unsigned thread);
  bool callGuarded(const std::function<void()>& body);
  void announce(Op& op);
  detail::Fiber& nextFiber();
  unsigned enabledAgents() const;
  bool canMove(unsigned thread) const;
  unsigned idleAgents();
  bool finished() const;
  void execute(unsigned agent, bool forced);
  void report(Failure failure, std::string message);
  [[noreturn]] void abandon();
  void bury();
  detail::Fiber& fiberOf(unsigned thread);

  // explorer_search.cc
  unsigned pick(unsigned enabled, bool forced);
  unsigned preferred(unsigned candidates) const;
  unsigned withinBound(unsigned enabled) const;
  bool advance();
  unsigned decide(unsigned count);
  void record(unsigned agent, const Op& op, bool forced, const detail::Clock& cause, size_t node);
  bool hasNext(unsigned agent) const;
  detail::Clock causeOf(unsigned agent) const;
  detail::Event nextStep(unsigned agent) const;
  bool watches(const detail::Event& spin, uint32_t object) const;
  bool dependent(const detail::Event& a, const detail::Event& b) const;
  void setClock(detail::Event& event, detail::ThreadState& state);
  void findRaces(const detail::Event& next);
  void findRacesOfBlocked(unsigned enabled);
  void addBacktrack(size_t index, const detail::Event& next);

  // explorer_objects.cc
  uint32_t find(const void* object, detail::ObjectKind kind, detail::Cell cell);
  uint32_t add(uintptr_t key, detail::ObjectKind kind, uint64_t value);
  uint32_t* slot(uintptr_t key);
  bool enter(unsigned thread, uint32_t object, Site site);
  std::string raceText(const Object& object, const char* what, unsigned thread, Site site,
                       unsigned other, bool otherWrote, Site otherSite) const;

  // explorer_memory.cc
  void apply(unsigned thread, Op& op);
  void applyLoad(unsigned thread, Op& op, MemoryOrder order);
  void applyStore(unsigned thread, Op& op);
  void applyRmw(unsigned thread, Op& op);
  void applyLock(unsigned thread, Op& op);
  void applyFutexWait(unsigned thread, Op& op);
  void applyFutexWake(Op& op);
  void buffer(unsigned thread, const Op& op);
  Op flush(unsigned thread);
  void acquire(unsigned thread, const detail::Clock& sync, MemoryOrder order);
  detail::Clock releasedBy(unsigned thread, MemoryOrder order);
  void setValue(Object& object, uint64_t value, unsigned by);
  void noteRead(unsigned thread, uint32_t object);
  bool sawChange(unsigned thread) const;

  // explorer_history.cc
  void addWrite(uint32_t object, unsigned writer, uint32_t epoch, bool seqCst);
  uint32_t pickWrite(unsigned thread, uint32_t object, MemoryOrder order);
  void sawLatest(unsigned thread, uint32_t object);
  uint32_t floorOf(unsigned thread, const Object& object) const;

  // explorer_trace.cc
  void trace(unsigned agent, detail::OpKind kind, uint32_t object, uint64_t before, uint64_t after,
             MemoryOrder order, detail::ValueType type, bool ok, Site site);
  std::string render() const;
  std::string nameOf(uint32_t object) const;
  std::string threadName(unsigned thread) const;
  std::string whyStuck() const;

  static thread_local Engine* active_;

  // of the whole search
  Options options_;
  const Scenario* scenario_ = nullptr;
  const std::vector<uint8_t>* fixedChoices_ = nullptr;
  std::vector<detail::Node> stack_;
  size_t fresh_ = 0;  // decisions before this one are repeated
  Result result_;

  // of one execution
  detail::Fiber root_;
  std::array<std::unique_ptr<detail::Fiber>, 5> fibers_;  // of the threads and of main
  std::array<bool, 5> busy_{};
  std::unique_ptr<Execution> run_;
  std::array<detail::ThreadState, 5> threads_;
  unsigned threadCount_ = 0;
  unsigned current_ = detail::kMain;
  unsigned last_ = 0;  // thread that moved last
  bool starting_ = false;
  bool redundant_ = false;  // only sleeping agents were left: run to the end without exploring
  unsigned sleep_ = 0;
  size_t depth_ = 0;  // decisions made
  uint32_t steps_ = 0;
  uint32_t idleRounds_ = 0;
  int preemptions_ = 0;
  int spuriousCas_ = 0, spuriousWake_ = 0, stale_ = 0;
  int64_t now_ = 0;
  std::vector<detail::Event> events_;
  std::vector<uint32_t> seenPool_;
  std::vector<uint8_t> picks_;
  std::vector<detail::TraceLine> trace_;
  std::vector<Object> objects_;
  std::vector<detail::Write> writes_;
  std::vector<uint32_t> waiters_;  // sleeping threads, longest first

  struct Slot {
    uintptr_t key;
    uint32_t execution;
    uint32_t object;
  };
  std::vector<Slot> slots_;
  size_t slotsUsed_ = 0;
  uint32_t execution_ = 0;
};

}  // namespace millrace::explorer
