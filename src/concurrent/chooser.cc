// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/atomic.h>
#include <millrace/concurrent/chooser.h>
#include <millrace/concurrent/event_executor.h>

#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace {

Chooser::~Chooser() = default;

namespace {

using Children = std::vector<EventExecutor*>;

Children checked(std::span<EventExecutor* const> children, const char* chooser) {
  if (children.empty()) {
    throw std::invalid_argument(std::string(chooser) +
                                "(): no executors to choose from; a group needs at least one");
  }
  return {children.begin(), children.end()};
}

/// For a number of children that is a power of two: a mask is cheaper than a division.
class MaskRoundRobin final : public Chooser {
 public:
  MaskRoundRobin(Children children, std::uint64_t start)
      : children_(std::move(children)), mask_(children_.size() - 1), turn_(start) {}
  EventExecutor& next() override {
    return *children_[turn_.fetch_add(1, std::memory_order_relaxed) & mask_];
  }

 private:
  const Children children_;
  const std::uint64_t mask_;
  Atomic<std::uint64_t> turn_;
};

class ModuloRoundRobin final : public Chooser {
 public:
  ModuloRoundRobin(Children children, std::uint64_t start)
      : children_(std::move(children)), turn_(start) {}
  EventExecutor& next() override {
    return *children_[turn_.fetch_add(1, std::memory_order_relaxed) % children_.size()];
  }

 private:
  const Children children_;
  Atomic<std::uint64_t> turn_;
};

class LeastLoaded final : public Chooser {
 public:
  explicit LeastLoaded(Children children)
      : children_(std::move(children)), last_(children_.size() - 1) {}
  EventExecutor& next() override {
    // The search begins behind the one chosen last: so equals take turns. Two threads that choose
    // at the same moment may choose the same one.
    const std::size_t first = after(last_.load(std::memory_order_relaxed));
    std::size_t best = first;
    std::size_t least = children_[best]->load();
    for (std::size_t at = after(first); at != first && least != 0; at = after(at)) {
      const std::size_t load = children_[at]->load();
      if (load >= least) continue;
      best = at;
      least = load;
    }
    last_.store(best, std::memory_order_relaxed);
    return *children_[best];
  }

 private:
  std::size_t after(std::size_t at) const noexcept {
    return at + 1 == children_.size() ? 0 : at + 1;
  }

  const Children children_;
  Atomic<std::size_t> last_;
};

}  // namespace

ChooserFactory roundRobinFromForTest(std::uint64_t start) {
  return [start](std::span<EventExecutor* const> given) -> std::unique_ptr<Chooser> {
    Children children = checked(given, "roundRobin");
    if (std::has_single_bit(children.size())) {
      return std::make_unique<MaskRoundRobin>(std::move(children), start);
    }
    return std::make_unique<ModuloRoundRobin>(std::move(children), start);
  };
}

ChooserFactory roundRobin() { return roundRobinFromForTest(0); }

ChooserFactory leastLoaded() {
  return [](std::span<EventExecutor* const> given) -> std::unique_ptr<Chooser> {
    return std::make_unique<LeastLoaded>(checked(given, "leastLoaded"));
  };
}

}  // namespace millrace
