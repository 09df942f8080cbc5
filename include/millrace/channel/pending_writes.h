// SPDX-License-Identifier: Apache-2.0
// PendingWrites: messages that a handler holds back, with those who wait for them, in order.
//
//   struct Gate : ChannelHandler {                          // nothing goes before it is opened
//     void handlerAdded(Context& ctx) override { held.emplace(ctx); }
//     void write(Context&, Message&& msg, Promise<void>&& done) override {
//       held->add(std::move(msg), std::move(done));
//     }
//     void open(Context& ctx) { held->removeAndWriteAll(); ctx.flush(); }
//     std::optional<PendingWrites> held;
//   };
//
// What is held counts against the water marks of the channel, like what it has queued itself.
//
// Threads: the channel's loop. Ownership: it belongs to its handler and must not outlive it; what is
// left then fails with Errc::closed.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <deque>

namespace millrace {

class Context;

/// See the top of this file.
class MILLRACE_API PendingWrites {
 public:
  /// Hands on what it holds by `ctx`.
  explicit PendingWrites(Context& ctx) noexcept : ctx_(ctx) {}
  PendingWrites(const PendingWrites&) = delete;
  PendingWrites& operator=(const PendingWrites&) = delete;
  ~PendingWrites();

  /// Holds `msg`; `done` may be empty.
  void add(Message&& msg, Promise<void>&& done);

  /// The first one goes on to the next handler, without a flush; one whose promise was cancelled is
  /// dropped. False if there is none.
  bool removeAndWrite();
  /// All of them, and those that are added meanwhile.
  void removeAndWriteAll();
  /// The first one fails. False if there is none.
  bool removeAndFail(const Error& why);
  void removeAndFailAll(const Error& why);
  /// The first one is dropped, and its promise is the caller's. REQUIRES: !empty()
  Promise<void> remove();

  /// The first one. REQUIRES: !empty()
  Message& front() noexcept { return entries_.front().msg; }
  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  /// Memory that the messages keep, and the entries' own: what counts against the water marks.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    Message msg;
    Promise<void> done;
    std::size_t cost;
  };
  Entry takeFront() noexcept;

  Context& ctx_;
  std::deque<Entry> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace millrace
