// SPDX-License-Identifier: Apache-2.0
// Plays bytes as operations on promises, futures, listeners and combinators, and on a model without
// any atomics; a difference ends the process.
//
// Half of the promises live on the immediate executor, half on one that is run by hand. The model
// keeps listeners as plain functions and knows one rule: whoever completes, or adds to what is
// complete, tells the listeners in order, at once where it may and else as a task.
#include "support/executors.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/combine.h>
#include <millrace/concurrent/future.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::test {
namespace {

class FutureModel {
 public:
  /// Returns "" or the first difference in words.
  std::string play(std::span<const std::uint8_t> script) {
    script_ = script;
    add();
    while (!script_.empty() && difference_.empty()) step();
    if (difference_.empty()) finish();
    return difference_;
  }

 private:
  enum class State { open, value, failed, cancelled, broken };
  static constexpr std::size_t kMost = 64;
  static constexpr int kMostLevels =
      2;  // of combinators: below the depth at which listeners are posted

  struct Model {
    bool byHand = false;
    bool uncancellable = false;
    int level = 0;
    State state = State::open;
    std::size_t value = 0;
    std::vector<std::function<void()>> listeners = {};
    bool notifying = false;
  };
  struct Real {
    Promise<std::size_t> promise;
    Future<std::size_t> future;  // of values
    Future<void> nothing;        // or of whenAll
    bool isAll() const { return nothing.valid(); }
  };

  std::uint8_t byte() {
    if (script_.empty()) return 0;
    const std::uint8_t first = script_.front();
    script_ = script_.subspan(1);
    return first;
  }
  std::size_t pick() { return byte() % model_.size(); }

  void step() {
    switch (byte() % 12) {
      case 0:
        return add();
      case 1:
        return succeed(pick(), byte());
      case 2:
        return fail(pick());
      case 3:
        return cancel(pick());
      case 4:
        return mark(pick());
      case 5:
        return drop(pick());
      case 6:
      case 7:
        return listen(pick());
      case 8:
        return all();
      case 9:
        return any();
      case 10:
        return chain();
      default:
        run();
        return compare();
    }
  }

  // --- operations, on both ---

  void add() {
    if (model_.size() >= kMost) return;
    addModel(byte() % 2 != 0, 0);
    Promise<std::size_t> promise(executorOf(model_.size() - 1));
    Future<std::size_t> future = promise.future();
    real_.push_back({std::move(promise), std::move(future), {}});
  }
  void succeed(std::size_t at, std::size_t value) {
    const bool can = real_[at].promise.valid();
    const bool expected = can && complete(at, State::value, value);
    expect(real_[at].promise.trySuccess(value) == expected, "trySuccess()", at);
  }
  void fail(std::size_t at) {
    const bool can = real_[at].promise.valid();
    const bool expected = can && complete(at, State::failed, 0);
    expect(real_[at].promise.tryFailure(Error(Errc::closed, "fuzz")) == expected, "tryFailure()",
           at);
  }
  void cancel(std::size_t at) {
    const bool expected = cancelModel(at);
    expect(cancelReal(at) == expected, "cancel()", at);
  }
  void mark(std::size_t at) {
    if (!real_[at].promise.valid()) return;
    const bool expected = model_[at].state == State::open;
    if (expected) model_[at].uncancellable = true;
    expect(real_[at].promise.setUncancellable() == expected, "setUncancellable()", at);
  }
  void drop(std::size_t at) {
    if (!real_[at].promise.valid()) return;
    complete(at, State::broken, 0);
    real_[at].promise = {};
  }
  void listen(std::size_t at) {
    const std::size_t number = listeners_++;
    addListener(at, [this, number] { modelTold_.push_back(number); });
    const auto tell = [this, number] { realTold_.push_back(number); };
    if (real_[at].isAll()) {
      real_[at].nothing.addListener(tell);
    } else {
      real_[at].future.addListener(tell);
    }
  }

  // Some of the futures of values whose level allows for one more.
  std::vector<std::size_t> sources() {
    std::vector<std::size_t> chosen;
    for (int left = byte() % 5; left > 0; --left) {
      const std::size_t at = pick();
      if (!real_[at].isAll() && model_[at].level < kMostLevels) chosen.push_back(at);
    }
    return chosen;
  }
  std::vector<Future<std::size_t>> futuresOf(const std::vector<std::size_t>& chosen) const {
    std::vector<Future<std::size_t>> futures;
    for (const std::size_t at : chosen) futures.push_back(real_[at].future);
    return futures;
  }
  int levelAbove(const std::vector<std::size_t>& chosen) const {
    int level = 0;
    for (const std::size_t at : chosen) level = std::max(level, model_[at].level);
    return level + 1;
  }

  void all() {
    const std::vector<std::size_t> chosen = sources();
    if (chosen.empty() || model_.size() >= kMost) return;
    const bool byHand = byte() % 2 != 0;
    const std::size_t combined = addModel(byHand, levelAbove(chosen));
    addListener(combined, [this, combined, chosen] {
      if (model_[combined].state == State::cancelled) cancelEach(chosen);
    });
    auto open = std::make_shared<std::size_t>(chosen.size());
    for (const std::size_t at : chosen) {
      addListener(at, [this, open, combined, chosen] {
        if (--*open != 0) return;
        for (const std::size_t each : chosen) {
          if (model_[each].state == State::value) continue;
          complete(combined, model_[each].state, 0);
          return;
        }
        complete(combined, State::value, 0);
      });
    }
    real_.push_back({{}, {}, whenAll(futuresOf(chosen), executorOf(combined))});
  }

  void any() {
    const std::vector<std::size_t> chosen = sources();
    if (chosen.empty() || model_.size() >= kMost) return;
    const bool byHand = byte() % 2 != 0;
    const std::size_t combined = addModel(byHand, levelAbove(chosen));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (model_[chosen[i]].state != State::open) complete(combined, State::value, i);
    }
    if (model_[combined].state == State::open) {
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        addListener(chosen[i], [this, combined, i] { complete(combined, State::value, i); });
      }
      addListener(combined, [this, combined, chosen] {
        if (model_[combined].state == State::cancelled) cancelEach(chosen);
      });
    }
    real_.push_back({{}, whenAny(futuresOf(chosen), executorOf(combined)), {}});
  }

  void chain() {
    const std::vector<std::size_t> chosen = sources();
    if (chosen.empty() || model_.size() >= kMost) return;
    const std::size_t from = chosen.front();
    const std::size_t to = addModel(byte() % 2 != 0, levelAbove({from}));
    addListener(to, [this, from, to] {
      if (model_[to].state == State::cancelled) cancelModel(from);
    });
    addListener(from, [this, from, to] { complete(to, model_[from].state, model_[from].value); });
    Promise<std::size_t> promise(executorOf(to));
    Future<std::size_t> future = promise.future();
    cascade(real_[from].future, std::move(promise));
    real_.push_back({{}, std::move(future), {}});
  }

  void run() {
    modelRuns_ = true;
    while (!posted_.empty()) {
      const std::size_t at = posted_.front();
      posted_.pop_front();
      notify(at);
    }
    modelRuns_ = false;
    executor_.run();
  }

  void compare() {
    expect(modelTold_ == realTold_, "which listeners were told, and in which order", 0);
    for (std::size_t at = 0; at < model_.size(); ++at) {
      if (real_[at].isAll()) {
        compareState(at, real_[at].nothing);
      } else {
        compareState(at, real_[at].future);
        const bool right =
            model_[at].state != State::value ||
            (real_[at].future.isSuccess() && real_[at].future.result().value() == model_[at].value);
        expect(right, "the value", at);
      }
    }
  }
  template <class T>
  void compareState(std::size_t at, const Future<T>& future) {
    const State state = model_[at].state;
    expect(future.isDone() == (state != State::open), "isDone()", at);
    expect(future.isSuccess() == (state == State::value), "isSuccess()", at);
    expect(future.isCancelled() == (state == State::cancelled), "isCancelled()", at);
    expect(future.cause().is(Errc::closed) == (state == State::failed), "cause()", at);
    expect(future.cause().is(Errc::brokenPromise) == (state == State::broken), "brokenPromise", at);
  }

  void finish() {
    run();
    for (std::size_t at = 0; at < model_.size(); ++at) drop(at);
    run();
    compare();
    expect(modelTold_.size() == listeners_, "that every listener is told in the end", 0);
    real_.clear();
    expect(executor_.users() == 0, "that nothing holds the executor in the end", 0);
  }

  // --- the model ---

  std::size_t addModel(bool byHand, int level) {
    model_.push_back({});
    model_.back().byHand = byHand;
    model_.back().level = level;
    return model_.size() - 1;
  }
  bool complete(std::size_t at, State state, std::size_t value) {
    if (model_[at].state != State::open) return false;
    model_[at].state = state;
    model_[at].value = value;
    if (!model_[at].listeners.empty()) startNotifying(at);
    return true;
  }
  bool cancelModel(std::size_t at) {
    return !model_[at].uncancellable && complete(at, State::cancelled, 0);
  }
  void cancelEach(const std::vector<std::size_t>& chosen) {
    for (const std::size_t at : chosen) cancelModel(at);
  }
  void addListener(std::size_t at, std::function<void()> listener) {
    model_[at].listeners.push_back(std::move(listener));
    if (model_[at].state != State::open) startNotifying(at);
  }
  void startNotifying(std::size_t at) {
    if (!model_[at].byHand || modelRuns_) {
      notify(at);
    } else {
      posted_.push_back(at);
    }
  }
  void notify(std::size_t at) {
    if (model_[at].notifying) return;
    model_[at].notifying = true;
    while (!model_[at].listeners.empty()) {
      auto all = std::exchange(model_[at].listeners, {});
      for (auto& each : all) each();
    }
    model_[at].notifying = false;
  }

  // --- the real ones ---

  bool cancelReal(std::size_t at) const {
    return real_[at].isAll() ? real_[at].nothing.cancel() : real_[at].future.cancel();
  }
  Executor& executorOf(std::size_t at) {
    return model_[at].byHand ? static_cast<Executor&>(executor_) : immediateExecutor();
  }

  void expect(bool holds, const char* what, std::size_t at) {
    if (holds || !difference_.empty()) return;
    difference_ = std::string("differs: ") + what + ", number " + std::to_string(at) + " of " +
                  std::to_string(model_.size());
  }

  QueueExecutor executor_;
  std::vector<Real> real_;
  std::vector<std::size_t> realTold_;

  std::vector<Model> model_;
  std::deque<std::size_t> posted_;
  std::vector<std::size_t> modelTold_;
  bool modelRuns_ = false;

  std::size_t listeners_ = 0;
  std::span<const std::uint8_t> script_;
  std::string difference_;
};

}  // namespace
}  // namespace millrace::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    millrace::setLogFilter("off");
    return true;
  }();
  static_cast<void>(quiet);
  millrace::test::FutureModel model;
  const std::string difference = model.play({data, size});
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}
