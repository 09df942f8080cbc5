// SPDX-License-Identifier: Apache-2.0
// Promise<T> and Future<T>: a result that comes later, from another thread or another turn.
//
// Threads: every call from any thread. Callbacks run on the promise's executor, in order, once:
// directly if the caller is there already, and on the global executor if the loop is gone.
// Ownership: a Future is a copyable handle, a Promise the move-only other end. Both keep the
// executor alive. A Promise that is dropped fails its Future with Errc::brokenPromise.
//
//   int answer = loop.submit([] { return 42; }).get();   // another thread: waits, throws on failure
//   loop.submit(work).addListener([](const Result<int>& r) { ... });   // anywhere
//   auto f = loop.submit(work);
//   int x = co_await f;                                  // in a coroutine
//   loop.submit(work).get();                             // BAD on the loop: BlockingOperation
#pragma once

#include <millrace/base/result.h>
#include <millrace/concurrent/future_state.h>

#include <coroutine>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace millrace {

template <class T>
class Future;

namespace internal {

/// The result beside the state. Written between claim() and publish(), read after isDone().
template <class T>
class ResultState final : public FutureState {
 public:
  using FutureState::FutureState;

  bool complete(Result<T>&& result) noexcept {
    if (!claim()) return false;
    result_.emplace(std::move(result));
    publish();
    return true;
  }
  bool cancel() {
    if (!claimForCancel()) return false;
    result_.emplace(Error(Errc::cancelled, "future"));
    publish();
    return true;
  }
  const Result<T>& result() const noexcept { return *result_; }
  Result<T>& result() noexcept { return *result_; }

 private:
  std::optional<Result<T>> result_;
};

}  // namespace internal

/// The handle of a result that comes later. Copies share one result. May be empty: `valid()`.
template <class T>
class Future {
 public:
  using value_type = T;

  Future() noexcept = default;

  /// A future that is complete already; its callbacks run on the thread that adds them.
  static Future of(Result<T> result) {
    auto state = makeRef<State>(immediateExecutor());
    state->complete(std::move(result));
    return Future(std::move(state));
  }

  /// For the library: a handle of a state made elsewhere.
  static Future ofState(Ref<internal::ResultState<T>> state) noexcept {
    return Future(std::move(state));
  }

  /// False for a default-constructed handle, on which nothing else may be called.
  bool valid() const noexcept { return static_cast<bool>(state_); }
  /// Where its callbacks run.
  Executor& executor() const noexcept { return state().executor(); }
  bool isDone() const noexcept { return state().isDone(); }
  bool isSuccess() const noexcept { return isDone() && state().result().ok(); }
  bool isCancelled() const noexcept {
    return isDone() && !state().result().ok() && state().result().error().isCancelled();
  }
  /// Why it failed; no error if it did not, or not yet.
  Error cause() const {
    return isDone() && !state().result().ok() ? state().result().error() : Error();
  }
  /// The result. Does not wait. REQUIRES: isDone()
  const Result<T>& result() const {
    MR_CHECK(isDone(), "Future::result() before the future is done");
    return state().result();
  }

  /// Waits, then gives the value or throws what went wrong. Throws BlockingOperation at once if
  /// called on the thread that has to complete it.
  decltype(auto) get() const& {
    sync();
    if constexpr (!std::is_void_v<T>) return static_cast<const T&>(state().result().value());
  }
  T get() && {
    sync();
    if constexpr (std::is_copy_constructible_v<T>) {
      return state().result().value();
    } else if constexpr (!std::is_void_v<T>) {
      return std::move(state().result().value());
    }
  }
  /// The same without the value.
  const Future& sync() const {
    state().await(Deadline::never());
    if (!state().result().ok()) state().result().error().raise();
    return *this;
  }
  /// Waits until done or `until` (on the real clock); tells whether it is done. Never throws for a
  /// failed result.
  bool await(Deadline until = Deadline::never()) const { return state().await(until); }

  /// Completes the future as cancelled and tells the promise's side by `isCancelled()`. False if it
  /// was done or marked uncancellable before.
  bool cancel() const { return state().cancel(); }

  /// Calls `fn` when done: as `fn(const Result<T>&)`, `fn(const Future<T>&)` or `fn()`.
  template <class F>
  const Future& addListener(F&& fn) const {
    state().addListener([state = state_.get(), alive = state_,
                         call = std::decay_t<F>(std::forward<F>(fn))]() mutable {
      if constexpr (std::is_invocable_v<std::decay_t<F>&, const Result<T>&>) {
        call(std::as_const(state->result()));
      } else if constexpr (std::is_invocable_v<std::decay_t<F>&, const Future<T>&>) {
        call(Future(alive));
      } else {
        call();
      }
    });
    return *this;
  }

  /// Suspends the coroutine until done; it goes on on the promise's executor. Gives the value or
  /// throws what went wrong.
  auto operator co_await() const& noexcept { return Awaiter{state_}; }
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
  /// GCC 12 destroys lambdas in the operand of co_await twice: name the future first.
  auto operator co_await() && = delete;
#else
  auto operator co_await() && noexcept { return Awaiter{std::move(state_)}; }
#endif

  friend bool operator==(const Future&, const Future&) noexcept = default;

 private:
  using State = internal::ResultState<T>;
  template <class>
  friend class Promise;

  struct Awaiter {
    Ref<State> state;
    bool await_ready() const noexcept { return state->isDone(); }
    void await_suspend(std::coroutine_handle<> waiting) const {
      // Copied first: the coroutine, and this awaiter with it, may be gone when addListener
      // returns.
      Ref<State> alive = state;
      alive->addListener([waiting] { waiting.resume(); });
    }
    T await_resume() const {
      if (!state->result().ok()) state->result().error().raise();
      if constexpr (std::is_copy_constructible_v<T>) {
        return state->result().value();
      } else if constexpr (!std::is_void_v<T>) {
        return std::move(state->result().value());
      }
    }
  };

  explicit Future(Ref<State> state) noexcept : state_(std::move(state)) {}
  State& state() const {
    MR_CHECK(static_cast<bool>(state_), "a call on an empty Future");
    return *state_;
  }

  Ref<State> state_;
};

/// The end that completes. Move-only; an empty one (`Promise<T>()`) costs nothing and swallows
/// results.
template <class T>
class Promise {
 public:
  Promise() noexcept = default;
  /// A promise whose callbacks run on `executor`.
  explicit Promise(Executor& executor) : state_(makeRef<State>(executor)) {}
  Promise(Promise&& other) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  ~Promise() { drop(); }

  /// False if default-constructed or moved from.
  bool valid() const noexcept { return static_cast<bool>(state_); }
  /// The other end. REQUIRES: valid()
  Future<T> future() const {
    MR_CHECK(valid(), "future() of an empty Promise");
    return Future<T>(state_);
  }

  /// Completes it; false if it was done already, or there is nobody to tell. Any thread.
  template <class U = T>
  requires(!std::is_void_v<T>) bool trySuccess(U&& value) const {
    return valid() && state_->complete(Result<T>(T(std::forward<U>(value))));
  }
  bool trySuccess() const requires std::is_void_v<T> {
    return valid() && state_->complete(Result<void>());
  }
  bool tryFailure(Error error) const {
    return valid() && state_->complete(Result<T>(std::move(error)));
  }
  bool tryComplete(Result<T> result) const {
    return valid() && state_->complete(std::move(result));
  }

  /// The same, but throws std::logic_error if it was done already.
  template <class... U>
  void setSuccess(U&&... value) const {
    if (valid() && !trySuccess(std::forward<U>(value)...)) throwDone("setSuccess");
  }
  void setFailure(Error error) const {
    if (valid() && !tryFailure(std::move(error))) throwDone("setFailure");
  }

  /// From now on cancel() fails. False if it was cancelled (or completed) before: then the work
  /// need not be done.
  bool setUncancellable() const noexcept { return valid() && state_->markUncancellable(); }
  /// True if the other side has cancelled.
  bool isCancelled() const noexcept { return valid() && future().isCancelled(); }

 private:
  using State = internal::ResultState<T>;

  [[noreturn]] static void throwDone(const char* call) {
    throw std::logic_error(std::string(call) +
                           "(): the promise is complete already; use the try form if others may "
                           "complete it, too");
  }
  void drop() noexcept {
    if (state_ && !state_->isDone()) {
      state_->complete(Result<T>(Error(Errc::brokenPromise, "promise")));
    }
  }

  Ref<State> state_;
};

}  // namespace millrace
