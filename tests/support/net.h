// SPDX-License-Identifier: Apache-2.0
// What tests of sockets share: engines and addresses as parameters, a peer made of plain blocking
// sockets, handlers that record, channels and servers to test. The peers' sockets are made past the
// call table, so that fault scripts neither count nor fail what the test itself does.
#pragma once

#include "support/engines.h"
#include "support/log_capture.h"

#include <millrace/base/manual_clock.h>
#include <millrace/bootstrap/bootstrap.h>
#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_handler.h>
#include <millrace/channel/message.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/socket_address.h>

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// One engine and one family of addresses, as a parameter of a suite: another engine is another
/// row. A value.
struct NetRow {
  std::string name;  ///< letters only, for the test's name
  IoFactory io;
  SocketAddress (*listenOn)();  ///< where a server of a test listens
  bool isTcp = true;

  LoopOptions options() const { return LoopOptions().io(io); }
  friend std::ostream& operator<<(std::ostream& out, const NetRow& row) { return out << row.name; }
};

/// Those on which a plain socket can be the peer.
std::vector<NetRow> socketRows();
std::string netRowName(const testing::TestParamInfo<NetRow>& info);

/// The far end of a connection: a plain blocking socket. What takes longer than kLimit fails.
class Peer {
 public:
  Peer() = default;
  /// Takes a connected socket.
  explicit Peer(Fd fd);
  /// Connects; a small `receiveBuffer` makes it easy to stop reading.
  static Peer to(const SocketAddress& server, int receiveBuffer = 0,
                 const SocketAddress& from = {});

  int fd() const noexcept { return fd_.get(); }
  bool isOpen() const noexcept { return fd_.get() >= 0; }
  /// All of it, or a failure of the test.
  void send(std::string_view bytes) const;
  /// As much as is taken without waiting; gives how much.
  std::size_t sendSome(std::string_view bytes) const;
  /// `count` bytes, fewer if the stream ends or breaks before.
  std::string receive(std::size_t count);
  /// Everything up to the end, which may be a failure: see error().
  std::string receiveAll();
  /// 0 after a clean end, else the errno of the last receive.
  int error() const noexcept { return error_; }
  void shutdownWrite() const;
  /// The kernel tells the other side that the connection broke (TCP).
  void reset();
  void close();

 private:
  Fd fd_;
  int error_ = 0;
};

/// An address where connections are refused, and where nobody else begins to listen meanwhile.
class Nobody {
 public:
  explicit Nobody(const SocketAddress& any = SocketAddress::loopback4(0));
  const SocketAddress& address() const noexcept { return address_; }

 private:
  Fd fd_;  // bound, and not listening
  SocketAddress address_;
};

/// A connected pair: a nonblocking end for a channel, and a peer.
struct Pair {
  Fd ours;
  Peer peer;
};
Pair makePair(bool isTcp, int peerReceiveBuffer = 0);

/// What handlers saw, in order. Any thread.
class EventLog {
 public:
  void add(std::string event);
  void addBytes(std::string_view bytes);
  std::vector<std::string> events() const;
  /// How many events begin with `prefix`.
  std::size_t count(std::string_view prefix) const;
  std::string bytes() const;
  std::size_t byteCount() const;
  /// Waits for an event that begins with `prefix`, the n-th one; false if it takes too long.
  bool await(std::string_view prefix, std::size_t n = 1) const;
  bool awaitBytes(std::size_t n) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> events_;
  std::string bytes_;
};
using LogPtr = std::shared_ptr<EventLog>;

/// Records every inbound event and passes it on: added, registered, active, read 10, readComplete,
/// event InputShutdown, writable, unwritable, exception <text>, inactive, unregistered, removed.
class RecordingHandler : public ChannelHandler {
 public:
  explicit RecordingHandler(LogPtr log) : log_(std::move(log)) {}

  void handlerAdded(Context& ctx) override;
  void handlerRemoved(Context& ctx) override;
  void channelRegistered(Context& ctx) override;
  void channelUnregistered(Context& ctx) override;
  void channelActive(Context& ctx) override;
  void channelInactive(Context& ctx) override;
  void channelRead(Context& ctx, Message&& msg) override;
  void channelReadComplete(Context& ctx) override;
  void userEventTriggered(Context& ctx, Message&& event) override;
  void channelWritabilityChanged(Context& ctx) override;
  void exceptionCaught(Context& ctx, const Error& error) override;

 private:
  LogPtr log_;  // shared with the test
};

/// The one of the blueprint.
struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }
};

using Fill = std::function<void(Channel&)>;
/// Adds a RecordingHandler.
Fill recording(const LogPtr& log);
/// Adds an EchoHandler.
Fill echoing();

/// A suite over rows. Its loops are asserted to run on the engine asked for.
class NetTest : public testing::TestWithParam<NetRow> {
 protected:
  bool isTcp() const { return GetParam().isTcp; }
  /// The engine moves the bytes itself: no call for each read and write.
  bool isByRing() const { return isTcp() && GetParam().io.type == &io::uringType; }
  SocketAddress anyAddress() const { return GetParam().listenOn(); }
  /// One loop unless more() was called first.
  EventLoopGroup& group();
  EventLoop& loop() { return *group().begin(); }
  void more(int loops) { loops_ = loops; }
  /// The loops' clock stands still from now on but for what the test does; before the first loop.
  ManualClock& manualClock() {
    isManual_ = true;
    return clock_;
  }
  /// Ends the loops.
  void endGroup() { group_.reset(); }
  /// On the loop, waiting.
  template <class F>
  auto inLoop(F&& fn) {
    return loop().submit(std::forward<F>(fn)).get();
  }

  struct Link {
    ChannelPtr channel;
    Peer peer;
  };
  /// A channel of the loop that is not registered yet.
  ChannelPtr adopt(Fd ours);
  /// A channel of the loop that is connected with a peer; `prepare` comes before the registration.
  Link link(const Fill& fill, const Fill& prepare = {}, int peerReceiveBuffer = 0);
  /// A server on the group, whose connections are filled by `fill`.
  Server serve(const Fill& fill);
  ServerBootstrap bootstrap(const Fill& fill);
  /// All that was asked of the loop has been done.
  void settle() {
    for (int i = 0; i < 3; ++i) inLoop([] {});
  }

  const LogCapture logs_{"debug"};

 private:
  int loops_ = 1;
  bool isManual_ = false;
  ManualClock clock_;  // outlives the loops
  std::optional<EventLoopGroup> group_;
};

/// `size` bytes that differ from place to place.
std::string pattern(std::size_t size, unsigned seed = 1);

/// EXPECT_TRUE(same(a, b)): as EXPECT_EQ, but says only where two long strings begin to differ.
testing::AssertionResult same(std::string_view got, std::string_view wanted);

/// The time to fail by.
inline constexpr auto kLimit = std::chrono::seconds(30);

/// Waits for `future`; fails the test after kLimit. True if it succeeded.
template <class T>
bool succeeds(const Future<T>& future) {
  EXPECT_TRUE(future.await(Deadline::after(kLimit))) << "it takes too long";
  return future.isSuccess();
}
/// The errno with which `future` failed, -1 if it did not, 0 for other errors.
template <class T>
int errnoOf(const Future<T>& future) {
  return succeeds(future) ? -1 : future.cause().errnoValue();
}
template <class T>
bool failsWith(const Future<T>& future, Errc code) {
  return !succeeds(future) && future.cause().is(code);
}

}  // namespace millrace::test
