// SPDX-License-Identifier: Apache-2.0
// Combinators: one future out of several, and one result handed on to another promise.
//
// Threads: any. Ownership: the sources' handles are shared until the combined future is done (of
// whenAll: until the last source is). Nothing here waits, and nothing needs a thread of its own.
//
// Cancelling goes against the stream: cancelling the combined future cancels every source that can
// still be cancelled, on the executor of the combined future. Otherwise sources are left alone;
// whenAny does not stop the slower ones.
//
//   whenAll(std::vector{flushed, closed}).addListener([](const Result<void>& r) { ... });
#pragma once

#include <millrace/concurrent/future.h>

#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace millrace {

namespace internal {

/// What the listeners of the sources and of the combined future share.
template <class T>
struct AllOf final : RefCounted<AllOf<T>> {
  AllOf(std::vector<Future<T>> all, Promise<void> promise)
      : sources(std::move(all)), done(std::move(promise)), open(sources.size()) {}

  /// One source is done. The last one reads the results of all: each of them has counted down.
  void countDown() {
    if (open.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (const Future<T>& source : sources) {
      if (source.isSuccess()) continue;
      done.tryFailure(source.cause());
      return;
    }
    done.trySuccess();
  }

  const std::vector<Future<T>> sources;
  const Promise<void> done;
  Atomic<std::size_t> open;
};

struct AnyOf final : RefCounted<AnyOf> {
  explicit AnyOf(Promise<std::size_t> promise) : done(std::move(promise)) {}
  const Promise<std::size_t> done;
};

template <class T>
struct HandOn final : RefCounted<HandOn<T>> {
  explicit HandOn(Promise<T> promise) : to(std::move(promise)) {}
  const Promise<T> to;
};

template <class T>
void cancelEach(const std::vector<Future<T>>& futures) {
  for (const Future<T>& each : futures) each.cancel();
}

}  // namespace internal

/// Completes when every source is done, on `executor`: with success if all succeeded, else with the
/// failure that comes first in the list, whichever came first in time. Of no sources: success at
/// once. REQUIRES: all futures are valid().
template <class T>
Future<void> whenAll(std::vector<Future<T>> futures, Executor& executor) {
  if (futures.empty()) return Future<void>::of({});
  auto all = makeRef<internal::AllOf<T>>(std::move(futures), Promise<void>(executor));
  Future<void> combined = all->done.future();
  combined.addListener([all](const Result<void>& result) {
    if (!result.ok() && result.error().isCancelled()) internal::cancelEach(all->sources);
  });
  for (const Future<T>& source : all->sources) source.addListener([all] { all->countDown(); });
  return combined;
}

/// The same, on the executor of the first source.
template <class T>
Future<void> whenAll(std::vector<Future<T>> futures) {
  Executor& executor = futures.empty() ? immediateExecutor() : futures.front().executor();
  return whenAll(std::move(futures), executor);
}

/// Completes with the index of the source that is done first, well or badly, on `executor`; of
/// those that are done already, the first in the list. It fails only by being cancelled. Throws
/// std::invalid_argument if there are no sources: none would ever be done. REQUIRES: all futures
/// are valid().
template <class T>
Future<std::size_t> whenAny(std::vector<Future<T>> futures, Executor& executor) {
  if (futures.empty()) {
    throw std::invalid_argument("whenAny() of no futures: it would never be done; give it one");
  }
  auto any = makeRef<internal::AnyOf>(Promise<std::size_t>(executor));
  Future<std::size_t> combined = any->done.future();
  for (std::size_t i = 0; i < futures.size(); ++i) {
    if (futures[i].isDone() && any->done.trySuccess(i)) return combined;
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    futures[i].addListener([any, i] { any->done.trySuccess(i); });
  }
  // Not in `any`: a source that is never done keeps its listener, and must not keep all the others.
  combined.addListener([sources = std::move(futures)](const Result<std::size_t>& result) {
    if (!result.ok()) internal::cancelEach(sources);
  });
  return combined;
}

/// The same, on the executor of the first source.
template <class T>
Future<std::size_t> whenAny(std::vector<Future<T>> futures) {
  Executor& executor = futures.empty() ? immediateExecutor() : futures.front().executor();
  return whenAny(std::move(futures), executor);
}

/// Completes `to` with the result of `from`, and cancels `from` if the future of `to` is cancelled
/// before. A value is copied; one that cannot be copied is moved out of `from`. An empty promise
/// swallows the result. REQUIRES: from.valid()
template <class T>
void cascade(const Future<T>& from, Promise<T> to) {
  if (!to.valid()) return;
  auto handOn = makeRef<internal::HandOn<T>>(std::move(to));
  handOn->to.future().addListener([from](const Result<T>& result) {
    if (!result.ok() && result.error().isCancelled()) from.cancel();
  });
  from.addListener([handOn](const Future<T>& done) {
    if (!done.isSuccess()) {
      handOn->to.tryFailure(done.cause());
    } else if constexpr (std::is_void_v<T>) {
      handOn->to.trySuccess();
    } else {
      handOn->to.trySuccess(Future<T>(done).get());
    }
  });
}

}  // namespace millrace
