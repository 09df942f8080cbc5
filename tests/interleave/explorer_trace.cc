// SPDX-License-Identifier: Apache-2.0
// What the explorer says: schedules, reasons, results.
#include "explorer_engine.h"

#include <cstdio>
#include <cstring>
#include <ostream>

namespace millrace::explorer {

using namespace detail;

std::string detail::siteText(Site site) {
  if (site.file == nullptr) return "?";
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash != nullptr ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

namespace {

const char* toString(MemoryOrder order) {
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
      return "consume";
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    default:
      return "seq_cst";
  }
}

/// Numbers pointers in order of appearance, so that a schedule reads the same every time.
class Values {
 public:
  std::string text(uint64_t bits, ValueType type) {
    if (type == ValueType::kSigned) {
      const auto value = static_cast<int64_t>(bits);
      return value == INT64_MAX ? "max" : std::to_string(value);
    }
    if (type == ValueType::kUnsigned) return std::to_string(bits);
    if (bits < 16) return bits == 0 ? "null" : "pointer " + std::to_string(bits);
    for (size_t i = 0; i < pointers_.size(); ++i) {
      if (pointers_[i] == bits) return numbered(i + 1);
    }
    pointers_.push_back(bits);
    return numbered(pointers_.size());
  }

 private:
  static std::string numbered(size_t number) {
    return std::string("&").append(std::to_string(number));
  }

  std::vector<uint64_t> pointers_;
};

std::string describe(const TraceLine& line, const std::string& object, Values& values) {
  const std::string before = values.text(line.before, line.type);
  const std::string after = values.text(line.after, line.type);
  const std::string order = std::string("  ") + toString(line.order);
  switch (line.kind) {
    case OpKind::kLoad:
      return "load " + object + " = " + before +
             (line.ok      ? " (own buffer)"
              : line.stale ? " (stale)"
                           : "") +
             order;
    case OpKind::kStore:
      return "store " + object + " := " + after + order;
    case OpKind::kRmw:
      return "rmw " + object + " " + before + " -> " + after + order;
    case OpKind::kCas:
      return "cas " + object + " " + before + (line.ok ? " -> " + after : " (failed)") + order;
    case OpKind::kFence:
      return "fence" + order;
    case OpKind::kLock:
      return "lock " + object;
    case OpKind::kTryLock:
      return "try_lock " + object + (line.ok ? "" : " (held)");
    case OpKind::kUnlock:
      return "unlock " + object;
    case OpKind::kFutexWait:
      return "futexWait " + object + " while " + before +
             (line.ok ? ": sleeps" : ": returns at once");
    case OpKind::kFutexWake:
      return "futexWake " + object + ": " + after + " woken";
    case OpKind::kResume:
      return "futexWait " + object +
             (line.after == static_cast<uint64_t>(FutexResult::kTimedOut) ? ": timed out"
                                                                          : ": woken");
    case OpKind::kRelax:
      return "cpuRelax";
    case OpKind::kFlush:
      return "store to " + object + " arrives: " + after;
    case OpKind::kBuffered:
      return "store " + object + " := " + after + " (into its buffer)" + order;
    case OpKind::kPlainRead:
      return "read " + object;
    case OpKind::kPlainWrite:
      return "write " + object;
    case OpKind::kDestroy:
      return "destroy " + object;
    case OpKind::kChoose:
      return "choose " + after + " of " + before;
  }
  return "?";
}

}  // namespace

void Engine::trace(unsigned agent, OpKind kind, uint32_t object, uint64_t before, uint64_t after,
                   MemoryOrder order, ValueType type, bool ok, Site site) {
  trace_.push_back(
      {static_cast<uint8_t>(agent), kind, order, type, ok, false, object, before, after, site});
}

std::string Engine::threadName(unsigned thread) const { return threads_[thread].name; }

std::string Engine::nameOf(uint32_t id) const {
  const Object& object = objects_[id];
  if (object.name != nullptr) return object.name;
  static const char* const kinds[] = {"atomic#", "plain#", "mutex#"};
  return kinds[static_cast<size_t>(object.kind)] + std::to_string(id);
}

/// Numbered lines are decisions of the scheduler; the others come with the one before.
std::string Engine::render() const {
  std::string text;
  Values values;
  size_t number = 0;
  for (const TraceLine& line : trace_) {
    // Main runs alone: its calls are no decisions, and its agent number is that of the first store
    // buffer.
    const bool main = line.agent == kMain && line.kind != OpKind::kFlush;
    const bool step = !main && line.kind <= OpKind::kFlush;
    if (main && line.kind == OpKind::kDestroy) continue;  // the state goes: not worth reading
    const std::string who = line.kind == OpKind::kFlush ? threadName(threadOf(line.agent)) + "~"
                                                        : threadName(line.agent);
    const std::string what = describe(
        line,
        line.kind == OpKind::kFence || line.kind == OpKind::kRelax || line.kind == OpKind::kChoose
            ? std::string()
            : nameOf(line.object),
        values);
    char start[64];
    if (step) {
      std::snprintf(start, sizeof(start), "%4zu  %-10s ", ++number, who.c_str());
    } else {
      std::snprintf(start, sizeof(start), "   .  %-10s ", who.c_str());
    }
    text += start + what;
    if (line.site.file != nullptr) text += "  " + siteText(line.site);
    text += '\n';
  }
  return text;
}

std::string Engine::raceText(const Object& object, const char* what, unsigned thread, Site site,
                             unsigned other, bool otherWrote, Site otherSite) const {
  const auto id = static_cast<uint32_t>(&object - objects_.data());
  const char* earlier = "access";
  if (object.kind == ObjectKind::kPlain) {
    earlier = otherWrote ? "write" : "read";
  } else if (otherWrote) {
    earlier = "construction";
  }
  return "race on " + nameOf(id) + ": the " + earlier + " by " + threadName(other) + " (" +
         siteText(otherSite) + ") does not happen before the " + what + " by " +
         threadName(thread) + " (" + siteText(site) + ")";
}

std::string Engine::whyStuck() const {
  std::string text;
  for (unsigned t = 0; t < threadCount_; ++t) {
    const ThreadState& state = threads_[t];
    text += (t == 0 ? "" : ", ") + threadName(t);
    if (state.finished) {
      text += " has ended";
    } else if (state.queued) {
      text += " sleeps on " + nameOf(state.pending.object);
    } else if (state.pending.kind == OpKind::kLock && objects_[state.pending.object].value != 0) {
      const auto holder = static_cast<unsigned>(objects_[state.pending.object].value - 1);
      text += " waits for " + nameOf(state.pending.object) + " held by " + threadName(holder);
    } else if (state.pending.kind == OpKind::kRelax) {
      text += " spins at " + siteText(state.pending.site);
    } else {
      text += " is at " + siteText(state.pending.site);
    }
  }
  return text;
}

const char* toString(Failure failure) noexcept {
  switch (failure) {
    case Failure::kNone:
      return "none";
    case Failure::kCheck:
      return "check failed";
    case Failure::kRace:
      return "data race";
    case Failure::kUseAfterDestroy:
      return "use after destruction";
    case Failure::kDeadlock:
      return "deadlock";
    case Failure::kStepLimit:
      return "no end";
    case Failure::kException:
      return "exception";
    case Failure::kMisuse:
      return "misuse";
    case Failure::kNondeterminism:
      return "not deterministic";
  }
  return "?";
}

std::string Result::summary() const {
  char text[200];
  std::snprintf(text, sizeof(text),
                "%llu executions (%llu redundant), %llu states, %llu steps, deepest %u, %.3f s%s",
                static_cast<unsigned long long>(executions),
                static_cast<unsigned long long>(redundant), static_cast<unsigned long long>(states),
                static_cast<unsigned long long>(steps), deepest, seconds,
                complete                    ? ""
                : failure == Failure::kNone ? ", cut short"
                                            : "");
  return text;
}

std::ostream& operator<<(std::ostream& out, const Result& result) {
  if (result.failure != Failure::kNone) {
    out << toString(result.failure) << ": " << result.message << '\n' << result.schedule;
  }
  return out << result.summary() << '\n';
}

}  // namespace millrace::explorer
