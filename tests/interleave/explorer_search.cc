// SPDX-License-Identifier: Apache-2.0
// Depth-first search over the decisions of the scheduler. With Options::reduction this is dynamic
// partial order reduction with source sets (Abdulla, Aronis, Jonsson, Sagonas 2014) and sleep sets:
// a decision is tried again with another agent only where that leads to a later conflicting step
// happening first.
#include "explorer_engine.h"

namespace millrace::explorer {

using namespace detail;

/// The agent that a run goes on with when nothing speaks for another: whoever ran last.
unsigned Engine::preferred(unsigned candidates) const {
  if ((candidates & bit(last_)) != 0) return last_;
  if ((candidates & bit(bufferOf(last_))) != 0 && threads_[last_].pending.kind != OpKind::kResume &&
      !threads_[last_].finished) {
    return bufferOf(last_);
  }
  unsigned agent = 0;
  while ((candidates & bit(agent)) == 0) ++agent;
  return agent;
}

unsigned Engine::withinBound(unsigned enabled) const {
  const bool couldGoOn =
      (enabled & bit(last_)) != 0 && steps_ > 0 && threads_[last_].pending.kind != OpKind::kRelax;
  if (options_.preemptionBound < 0 || !couldGoOn || preemptions_ < options_.preemptionBound)
    return enabled;
  return enabled & (bit(last_) | 0xF0U);  // buffers are free to flush
}

unsigned Engine::pick(unsigned enabled, bool forced) {
  unsigned agent = 0;
  if (fixedChoices_ != nullptr) {
    agent = depth_ < fixedChoices_->size() ? (*fixedChoices_)[depth_] : preferred(enabled);
    if (agent >= kAgents || (enabled & bit(agent)) == 0) {
      report(Failure::kNondeterminism, "the schedule does not fit this scenario");
      return 0;
    }
  } else if (redundant_) {
    agent = preferred(enabled);
  } else if (depth_ < stack_.size()) {
    const Node& node = stack_[depth_];
    agent = node.chosen;
    if (node.count != 0 || node.enabled != withinBound(enabled)) {
      report(Failure::kNondeterminism,
             "the scenario did something else when a schedule was repeated");
      return 0;
    }
    if (options_.reduction) sleep_ = node.sleep | node.done;
  } else {
    const unsigned allowed = withinBound(enabled);
    const unsigned awake = allowed & ~sleep_;
    if (awake == 0) {
      findRacesOfBlocked(enabled);
      redundant_ = true;  // every continuation was seen: finish quickly, but properly
      agent = preferred(enabled);
    } else {
      agent = preferred(awake);
      const unsigned backtrack = options_.reduction && !forced ? bit(agent) : allowed;
      stack_.push_back({static_cast<uint8_t>(agent), 0, static_cast<uint8_t>(allowed),
                        static_cast<uint8_t>(backtrack), 0, static_cast<uint8_t>(sleep_)});
      ++result_.states;
    }
  }
  if (!isBuffer(agent) && agent != last_ && steps_ > 0 && (enabled & bit(last_)) != 0 &&
      threads_[last_].pending.kind != OpKind::kRelax) {
    ++preemptions_;
  }
  ++depth_;
  picks_.push_back(static_cast<uint8_t>(agent));
  return agent;
}

/// A decision that is not the scheduler's: 0..count-1.
unsigned Engine::decide(unsigned count) {
  if (count <= 1) return 0;
  unsigned chosen = 0;
  if (fixedChoices_ != nullptr) {
    if (depth_ < fixedChoices_->size()) chosen = (*fixedChoices_)[depth_];
  } else if (!redundant_) {
    if (depth_ == stack_.size()) {
      stack_.push_back({0, static_cast<uint8_t>(count), 0, 0, 0, 0});
      ++result_.states;
    }
    chosen = stack_[depth_].chosen;
    if (stack_[depth_].count != count) {
      report(Failure::kNondeterminism,
             "the scenario decided something else when a schedule was repeated");
    }
  }
  if (chosen >= count) {
    report(Failure::kNondeterminism, "the schedule does not fit this scenario");
    chosen = 0;
  }
  ++depth_;
  picks_.push_back(static_cast<uint8_t>(chosen));
  return chosen;
}

int Engine::choose(int count, Site site) {
  if (count <= 1) return 0;
  if (count > 255) fail(Failure::kMisuse, "choose() has at most 255 alternatives");
  const unsigned chosen = decide(static_cast<unsigned>(count));
  trace(current_, OpKind::kChoose, 0, static_cast<uint64_t>(count), chosen,
        std::memory_order_relaxed, ValueType::kUnsigned, true, site);
  if (result_.failure != Failure::kNone) abandon();
  return static_cast<int>(chosen);
}

/// Goes to the deepest decision that has something left to try. False: the search is over.
bool Engine::advance() {
  while (!stack_.empty()) {
    Node& node = stack_.back();
    if (node.count != 0) {
      if (node.chosen + 1 < node.count) {
        ++node.chosen;
        break;
      }
    } else {
      node.done = static_cast<uint8_t>(node.done | bit(node.chosen));
      const unsigned left = node.backtrack & ~unsigned{node.done} & ~unsigned{node.sleep};
      if (left != 0) {
        unsigned agent = 0;
        while ((left & bit(agent)) == 0) ++agent;
        node.chosen = static_cast<uint8_t>(agent);
        break;
      }
    }
    stack_.pop_back();
  }
  if (stack_.empty()) return false;
  fresh_ = stack_.size() - 1;
  return true;
}

bool Engine::hasNext(unsigned agent) const {
  const ThreadState& state = threads_[threadOf(agent)];
  return isBuffer(agent) ? state.buffered() : !state.finished;
}

/// Everything that must have happened before the next step of `agent` could be made.
Clock Engine::causeOf(unsigned agent) const {
  const ThreadState& state = threads_[threadOf(agent)];
  Clock cause = isBuffer(agent) ? state.bufferStep : state.step;
  if (isBuffer(agent)) {
    cause.join(state.buffer[state.head].cause);
  } else if (drains(state.pending.kind)) {
    cause.join(state.bufferStep);
  }
  return cause;
}

/// The next step of an agent that sleeps, as far as it is known before it is made.
Event Engine::nextStep(unsigned agent) const {
  const ThreadState& state = threads_[threadOf(agent)];
  Event event{};
  event.agent = static_cast<uint8_t>(agent);
  if (isBuffer(agent)) {
    event.kind = OpKind::kFlush;
    event.touch = kWrite;
    event.object = state.buffer[state.head].object;
  } else {
    event.kind = state.pending.kind;
    event.touch = state.pending.touch;
    event.object = state.pending.object;
  }
  return event;
}

/// Whether a thread that spins would notice a change of `object`.
bool Engine::watches(const Event& spin, uint32_t object) const {
  if (spin.seenBegin == spin.seenEnd) {
    return objects_[object].seenRound[spin.agent] == threads_[spin.agent].round;  // still to come
  }
  const auto begin = seenPool_.begin();
  return std::find(begin + spin.seenBegin, begin + spin.seenEnd, object) != begin + spin.seenEnd;
}

/// Whether the order of two steps matters. Must agree with the clocks that record() joins. A flush
/// and a load of the same word by the same thread would commute; they count as dependent, because
/// the clocks of the word do not tell whose reads and writes they hold.
bool Engine::dependent(const Event& a, const Event& b) const {
  if (a.forced || b.forced) return true;
  const bool aSpins = a.kind == OpKind::kRelax;
  const bool bSpins = b.kind == OpKind::kRelax;
  if (aSpins || bSpins) {
    if (aSpins && bSpins) return false;
    const Event& other = aSpins ? b : a;
    return (other.touch & kWrite) != 0 && watches(aSpins ? a : b, other.object);
  }
  return a.object == b.object && conflict(a.touch, b.touch);
}

/// Adds the step just made: looks for races with the steps before, sets its clock, and wakes the
/// agents for which it makes a difference.
void Engine::record(unsigned agent, const Op& op, bool forced, const Clock& cause, size_t node) {
  if (!options_.reduction || redundant_ || fixedChoices_ != nullptr) return;
  ThreadState& state = threads_[threadOf(agent)];
  Event event{};
  event.agent = static_cast<uint8_t>(agent);
  event.touch = op.touch;
  event.forced = forced;
  event.kind = op.kind;
  event.object = op.object;
  event.node = static_cast<uint32_t>(node);
  event.clock = cause;
  if (op.kind == OpKind::kRelax) {
    event.seenBegin = static_cast<uint32_t>(seenPool_.size());
    seenPool_.insert(seenPool_.end(), state.seen.begin(), state.seen.end());
    event.seenEnd = static_cast<uint32_t>(seenPool_.size());
  }
  if (event.node >= fresh_ && !forced) findRaces(event);
  setClock(event, state);
  for (unsigned t = 0; t < threadCount_; ++t) {
    const bool woken = op.kind == OpKind::kFutexWake && (op.expected & bit(t)) != 0;
    if (forced || woken) threads_[t].step.join(event.clock);
    if (forced) threads_[t].bufferStep.join(event.clock);
  }
  events_.push_back(event);
  for (unsigned other = 0; other < kAgents; ++other) {
    if ((sleep_ & bit(other)) == 0) continue;
    if (!hasNext(other) || dependent(event, nextStep(other))) sleep_ &= ~bit(other);
  }
}

/// Joins the clocks of all steps that `event` depends on, and leaves its own for the steps to come.
void Engine::setClock(Event& event, ThreadState& state) {
  Clock& clock = event.clock;
  if (event.forced) {
    for (unsigned t = 0; t < threadCount_; ++t) {
      clock.join(threads_[t].step);
      clock.join(threads_[t].bufferStep);
    }
  }
  Object* object = event.touch != kNothing ? &objects_[event.object] : nullptr;
  if (object != nullptr) {
    if ((event.touch & (kRead | kWrite)) != 0) clock.join(object->stepWrite);
    if ((event.touch & kWrite) != 0) clock.join(object->stepRead);
    if ((event.touch & kQueue) != 0) clock.join(object->stepQueue);
  }
  for (size_t i = event.seenBegin; i < event.seenEnd; ++i)
    clock.join(objects_[seenPool_[i]].stepWrite);

  event.count = ++clock.at[event.agent];
  (isBuffer(event.agent) ? state.bufferStep : state.step) = clock;
  if (object != nullptr) {
    if ((event.touch & kWrite) != 0) {
      object->stepWrite = clock;
    } else if ((event.touch & kRead) != 0) {
      object->stepRead.join(clock);
    }
    if ((event.touch & kQueue) != 0) object->stepQueue = clock;
  }
  for (size_t i = event.seenBegin; i < event.seenEnd; ++i)
    objects_[seenPool_[i]].stepRead.join(clock);
}

/// Finds the steps that `next` depends on directly and that could as well have come after it.
/// `next.clock` holds its causes only.
void Engine::findRaces(const Event& next) {
  Clock before = next.clock;
  for (size_t i = events_.size(); i-- > 0;) {
    const Event& event = events_[i];
    if (before.at[event.agent] >= event.count || !dependent(event, next)) continue;
    // Never both possible: the race is with the lock before.
    if (event.kind == OpKind::kUnlock && next.kind == OpKind::kLock) continue;
    addBacktrack(i, next);
    // A lock may be impossible before the nearest conflict and yet possible before an earlier one.
    if (next.kind != OpKind::kLock) before.join(event.clock);
  }
}

/// The same for threads that cannot move, where the search would otherwise not come to their step:
/// a lock that was taken by someone else must also be tried by them first.
void Engine::findRacesOfBlocked(unsigned enabled) {
  if (!options_.reduction || redundant_ || fixedChoices_ != nullptr || depth_ < fresh_) return;
  for (unsigned t = 0; t < threadCount_; ++t) {
    if (threads_[t].finished || (enabled & bit(t)) != 0) continue;
    Event next = nextStep(t);
    next.clock = causeOf(t);
    findRaces(next);
  }
}

/// Sees to it that `next` is also tried before step `index`. What can come first then: an agent
/// whose first step, among the later steps that do not need step `index`, needs none of the others.
void Engine::addBacktrack(size_t index, const Event& next) {
  const Event& event = events_[index];
  std::array<uint32_t, kAgents> firstOf{};  // count of each agent's first such step, 0: none
  unsigned initials = 0;
  const auto needsNone = [&firstOf](const Clock& clock) {
    for (unsigned a = 0; a < kAgents; ++a) {
      if (firstOf[a] != 0 && clock.at[a] >= firstOf[a]) return false;
    }
    return true;
  };
  bool nextIsFirst = true;
  for (size_t j = index + 1; j < events_.size(); ++j) {
    const Event& later = events_[j];
    if (later.clock.at[event.agent] >= event.count) continue;
    nextIsFirst = nextIsFirst && !dependent(later, next);
    if (firstOf[later.agent] != 0) continue;
    if (needsNone(later.clock)) initials |= bit(later.agent);
    firstOf[later.agent] = later.count;
  }
  if (nextIsFirst && firstOf[next.agent] == 0 && needsNone(next.clock)) initials |= bit(next.agent);

  Node& node = stack_[event.node];
  initials &= node.enabled;
  if ((initials & (node.backtrack | node.sleep)) != 0) return;
  if (initials == 0) {
    initials = node.enabled;  // a step that was not possible there: try everything
  } else {
    initials &= ~(initials - 1);  // one is enough
  }
  node.backtrack = static_cast<uint8_t>(node.backtrack | initials);
}

}  // namespace millrace::explorer
