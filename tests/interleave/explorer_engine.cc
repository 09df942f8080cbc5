// SPDX-License-Identifier: Apache-2.0
#include "explorer_engine.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace millrace::explorer {

using namespace detail;

namespace {

constexpr size_t kStackBytes = size_t{256} * 1024;

/// What failed executions leave behind: stacks that nobody unwinds and the state they refer to.
struct Graveyard {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::unique_ptr<Execution>> runs;
  std::vector<uint64_t> values;  // of atomics, which may be the only pointers to something
};

Graveyard& graveyard() {
  static Graveyard* const yard = new Graveyard;  // never destroyed: nor are its dead
  return *yard;
}

}  // namespace

thread_local Engine* Engine::active_ = nullptr;

Engine::Engine() : run_(std::make_unique<Execution>()), slots_(256) {}
Engine::~Engine() = default;

Engine& Engine::instance() {
  static thread_local Engine engine;
  return engine;
}

void Execution::thread(const char* name, std::function<void()> body) {
  if (threads_.size() == kMaxThreads) {
    Engine::instance().fail(Failure::kMisuse, "a scenario has at most four threads");
  }
  threads_.push_back({name, std::move(body)});
}

void Execution::finally(std::function<void()> check) { checks_.push_back(std::move(check)); }

void Execution::clear() {
  threads_.clear();
  checks_.clear();
  while (!objects_.empty()) objects_.pop_back();  // last made, first gone
}

Result Engine::explore(const Options& options, const Scenario& scenario,
                       const std::vector<uint8_t>* choices) {
  if (active_ != nullptr) {
    std::fputs("explorer: explore() inside explore()\n", stderr);
    std::abort();
  }
  const auto begin = std::chrono::steady_clock::now();
  options_ = options;
  if (options_.preemptionBound >= 0) options_.reduction = false;
  scenario_ = &scenario;
  fixedChoices_ = choices;
  stack_.clear();
  fresh_ = 0;
  result_ = Result{};
  for (;;) {
    runOnce();
    ++result_.executions;
    if (redundant_) ++result_.redundant;
    result_.steps += steps_;
    result_.deepest = std::max(result_.deepest, steps_);
    if (result_.failure != Failure::kNone) {
      result_.choices = picks_;
      result_.schedule = render();
      bury();
      break;
    }
    if (fixedChoices_ != nullptr || !advance()) {
      result_.complete = true;
      break;
    }
    if (options_.maxExecutions != 0 && result_.executions >= options_.maxExecutions) break;
  }
  result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(result_);
}

void Engine::runOnce() {
  ++execution_;
  slotsUsed_ = 0;
  objects_.clear();
  writes_.clear();
  events_.clear();
  seenPool_.clear();
  picks_.clear();
  trace_.clear();
  waiters_.clear();
  for (ThreadState& thread : threads_) {
    thread.finished = true;
    thread.queued = thread.woken = false;
    thread.hb = thread.acquirable = thread.releaseFence = thread.step = thread.bufferStep = Clock{};
    thread.buffer.clear();
    thread.head = 0;
    thread.seen.clear();
    thread.round = 1;
    thread.fenceFloor = 0;
  }
  threadCount_ = last_ = sleep_ = steps_ = idleRounds_ = 0;
  depth_ = 0;
  preemptions_ = spuriousCas_ = spuriousWake_ = stale_ = 0;
  now_ = 0;
  redundant_ = false;
  starting_ = true;
  threads_[kMain].name = "main";
  threads_[kMain].hb.at[kMain] = 1;
  current_ = kMain;
  active_ = this;

  Fiber::switchTo(root_, fiberOf(kMain));  // setup
  for (unsigned t = 0; t < threadCount_ && result_.failure == Failure::kNone; ++t) {
    current_ = t;
    Fiber::switchTo(root_, fiberOf(t));  // to its first announcement
  }
  starting_ = false;
  if (result_.failure == Failure::kNone) Fiber::switchTo(root_, nextFiber());
  if (result_.failure == Failure::kNone) {
    for (unsigned t = 0; t < threadCount_; ++t) threads_[kMain].hb.join(threads_[t].hb);
    current_ = kMain;
    Fiber::switchTo(root_, *fibers_[kMain]);  // final checks
  }
  active_ = nullptr;
}

Fiber& Engine::fiberOf(unsigned thread) {
  if (fibers_[thread] == nullptr) fibers_[thread] = std::make_unique<Fiber>(kStackBytes);
  struct Jobs {
    static void main(void* engine) { static_cast<Engine*>(engine)->runMain(); }
    static void thread(void* engine) {
      auto* self = static_cast<Engine*>(engine);
      self->runThread(self->current());
    }
  };
  fibers_[thread]->setJob(thread == kMain ? &Jobs::main : &Jobs::thread, this);
  busy_[thread] = true;
  return *fibers_[thread];
}

void Engine::runMain() {
  callGuarded([this] { (*scenario_)(*run_); });
  threadCount_ = static_cast<unsigned>(run_->threads_.size());
  ThreadState& main = threads_[kMain];
  for (unsigned t = 0; t < threadCount_; ++t) {
    threads_[t].name = run_->threads_[t].name;
    threads_[t].finished = false;
    threads_[t].hb = main.hb;
    threads_[t].hb.at[t] = 1;
  }
  ++main.hb.at[kMain];
  Fiber::switchTo(*fibers_[kMain], root_);
  for (const auto& check : run_->checks_) callGuarded(check);
  run_->clear();
  busy_[kMain] = false;
  Fiber::switchTo(*fibers_[kMain], root_);
}

void Engine::runThread(unsigned thread) {
  callGuarded(run_->threads_[thread].run);
  threads_[thread].finished = true;
  busy_[thread] = false;
  Fiber::switchTo(*fibers_[thread], starting_ ? root_ : nextFiber());
}

bool Engine::callGuarded(const std::function<void()>& body) {
  std::string text;
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "not a std::exception";
  }
  fail(Failure::kException, threadName(current_) + " threw: " + text);
}

/// Waits until the scheduler has chosen this operation and made it; the answer comes back in `op`.
void Engine::announce(Op& op) {
  const unsigned thread = current_;
  ThreadState& state = threads_[thread];
  state.pending = op;
  if (thread == kMain) {
    if ((op.kind == OpKind::kLock && objects_[op.object].value != 0)) {
      fail(Failure::kDeadlock, "main waits for a mutex, and no thread is running");
    }
    apply(kMain, state.pending);
    if (state.queued) fail(Failure::kDeadlock, "main sleeps in a futex, and no thread is running");
    if (result_.failure != Failure::kNone) abandon();
  } else {
    Fiber::switchTo(*fibers_[thread], starting_ ? root_ : nextFiber());
  }
  op = state.pending;
}

/// Makes steps until one lets a thread go on, and returns that thread's fiber; the root when all is
/// over.
Fiber& Engine::nextFiber() {
  for (;;) {
    if (result_.failure != Failure::kNone) return root_;
    bool forced = false;
    unsigned enabled = enabledAgents();
    if (enabled == 0) {
      if (finished()) return root_;
      findRacesOfBlocked(0);
      forced = true;
      enabled = idleAgents();
      if (enabled == 0) {
        report(Failure::kDeadlock, "nobody can move: " + whyStuck());
        return root_;
      }
    }
    if (steps_ >= options_.maxSteps) {
      report(Failure::kStepLimit,
             "no end after " + std::to_string(steps_) + " steps: " + whyStuck());
      return root_;
    }
    const unsigned agent = pick(enabled, forced);
    if (result_.failure != Failure::kNone) return root_;
    execute(agent, forced);
    if (result_.failure != Failure::kNone) return root_;
    if (!isBuffer(agent) && !threads_[agent].queued) {
      current_ = agent;
      return *fibers_[agent];
    }
  }
}

void Engine::execute(unsigned agent, bool forced) {
  ++steps_;
  const unsigned thread = threadOf(agent);
  ThreadState& state = threads_[thread];
  const Clock cause = causeOf(agent);
  const size_t node = depth_ - 1;
  if (isBuffer(agent)) {
    const Op op = flush(thread);
    record(agent, op, forced, cause, node);
    return;
  }
  last_ = thread;
  apply(thread, state.pending);
  record(agent, state.pending, forced, cause, node);
  if (state.queued) {
    state.pending.kind = OpKind::kResume;
    state.pending.touch = kNothing;
  } else if (state.pending.kind == OpKind::kRelax) {
    state.seen.clear();
    ++state.round;
  }
}

unsigned Engine::enabledAgents() const {
  unsigned mask = 0;
  for (unsigned t = 0; t < threadCount_; ++t) {
    if (threads_[t].buffered()) mask |= bit(bufferOf(t));
    if (!threads_[t].finished && canMove(t)) mask |= bit(t);
  }
  return mask;
}

bool Engine::canMove(unsigned thread) const {
  const ThreadState& state = threads_[thread];
  if (state.buffered() && drains(state.pending.kind)) return false;
  switch (state.pending.kind) {
    case OpKind::kLock:
      return objects_[state.pending.object].value == 0;
    case OpKind::kResume:
      return state.woken;
    case OpKind::kRelax:
      return sawChange(thread);
    default:
      return true;
  }
}

/// Who goes on when nobody can: first those that spin, in turn, for a while; then time passes. Who
/// begins is explored, the order after that is not: as long as nothing changes it makes no
/// difference.
unsigned Engine::idleAgents() {
  unsigned spinning = 0;
  int64_t earliest = kForever;
  for (unsigned t = 0; t < threadCount_; ++t) {
    if (threads_[t].finished) continue;
    if (threads_[t].pending.kind == OpKind::kRelax) spinning |= bit(t);
    if (threads_[t].queued) earliest = std::min(earliest, threads_[t].pending.deadline);
  }
  if (spinning != 0 && idleRounds_ < options_.spinLimit) {
    if (idleRounds_++ == 0) return spinning;
    unsigned t = (last_ + 1) % kMaxThreads;
    while ((spinning & bit(t)) == 0) t = (t + 1) % kMaxThreads;
    return bit(t);
  }
  if (earliest == kForever) return 0;
  idleRounds_ = 0;
  unsigned due = 0;
  for (unsigned t = 0; t < threadCount_; ++t) {
    if (!threads_[t].finished && threads_[t].queued && threads_[t].pending.deadline == earliest)
      due |= bit(t);
  }
  return due;
}

bool Engine::finished() const {
  for (unsigned t = 0; t < threadCount_; ++t) {
    if (!threads_[t].finished || threads_[t].buffered()) return false;
  }
  return true;
}

void Engine::report(Failure failure, std::string message) {
  if (result_.failure != Failure::kNone) return;
  result_.failure = failure;
  result_.message = std::move(message);
}

void Engine::fail(Failure failure, std::string message) {
  report(failure, std::move(message));
  abandon();
}

void Engine::abandon() {
  Fiber::switchTo(*fibers_[current_], root_);
  std::abort();  // nobody comes back
}

void Engine::bury() {
  for (size_t i = 0; i < fibers_.size(); ++i) {
    if (busy_[i] && !fibers_[i]->reset()) graveyard().fibers.push_back(std::move(fibers_[i]));
    busy_[i] = false;
  }
  for (const Object& object : objects_) graveyard().values.push_back(object.value);
  for (const ThreadState& thread : threads_) {
    for (const BufferedStore& store : thread.buffer) graveyard().values.push_back(store.value);
  }
  graveyard().runs.push_back(std::move(run_));
  run_ = std::make_unique<Execution>();
}

Result explore(const Options& options, const Scenario& scenario) {
  return Engine::instance().explore(options, scenario, nullptr);
}

Result replay(const Options& options, const Scenario& scenario,
              const std::vector<uint8_t>& choices) {
  return Engine::instance().explore(options, scenario, &choices);
}

void failCheck(const std::string& text, Site site) {
  const std::string message = text + " at " + siteText(site);
  if (Engine::active() != nullptr) Engine::active()->fail(Failure::kCheck, message);
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

}  // namespace millrace::explorer
