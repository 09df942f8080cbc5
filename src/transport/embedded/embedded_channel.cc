// SPDX-License-Identifier: Apache-2.0
#include "channel/loop_channels.h"
#include "transport/embedded/embedded_parts.h"

#include <millrace/base/log.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/transport/embedded_channel.h>

#include <stdexcept>

namespace millrace {

namespace {

/// Turns of the loop before runPendingTasks() gives up.
constexpr int kMaxTurns = 100'000;
/// How far time goes on in each turn while the loop ends.
constexpr Duration kEndStep = std::chrono::milliseconds(100);

}  // namespace

EmbeddedChannel::Parts::Parts()
    : loop(EventLoop::handDriven(LoopOptions().name("embedded").io(io::parking()).clock(clock))) {}

EmbeddedChannel::EmbeddedChannel(std::unique_ptr<Parts> parts, bool connected)
    : Channel(*parts->loop), parts_(std::move(parts)) {
  parts_->connected = connected;
  ref();  // its own: it does not delete itself
}

EmbeddedChannel::EmbeddedChannel(const Fill& fill) : EmbeddedChannel(EmbeddedSetup(), fill) {}

EmbeddedChannel::EmbeddedChannel(EmbeddedSetup setup, const Fill& fill)
    : EmbeddedChannel(std::make_unique<Parts>(), setup.connected) {
  if (!setup.registered) {
    if (fill) fill(*this);
    return;
  }
  run([&] { registerNow(fill); });
  checkException();
}

EmbeddedChannel::~EmbeddedChannel() {
  endLoop();
  for (const Error& error : parts_->errors) {
    log(LogLevel::warn, "transport", describe(),
        ": nobody asked for an error that reached the end of the pipeline: ", error.message());
  }
  MR_CHECK(hasOneOwner(), "an EmbeddedChannel is destroyed while a ChannelPtr to it is held");
}

// The channel is closed by its loop, whatever its handlers think of that.
void EmbeddedChannel::endLoop() {
  EventLoop& mine = loop();
  if (!isRegistered() && isOpen() && !mine.isShutdown()) run([this] { closeNow({}); });
  static_cast<void>(mine.shutdownGracefully());
  while (!mine.isTerminated()) {
    mine.runNow();
    parts_->clock.advance(kEndStep);
  }
}

Future<void> EmbeddedChannel::start() {
  return run([this] { return registerChannel(loop(), ChannelPtr(this)); });
}

// --- time and tasks ---

void EmbeddedChannel::runOnLoop(const std::function<void()>& fn) {
  if (loop().inEventLoop()) return fn();
  bool done = false;
  std::exception_ptr thrown;
  loop().execute([&] {
    try {
      fn();
    } catch (...) {
      thrown = std::current_exception();
    }
    done = true;
  });
  while (!done) loop().runNow();
  runPendingTasks();
  if (thrown) std::rethrow_exception(thrown);
}

void EmbeddedChannel::runPendingTasks() {
  EventLoop& mine = loop();
  const auto hasWork = [&mine] {
    return mine.attachment() != nullptr && mine.attachment()->hasWork();
  };
  for (int turns = 0; mine.runNow() != 0 || hasWork(); ++turns) {
    if (turns < kMaxTurns) continue;
    throw std::logic_error("runPendingTasks() of " + describe() +
                           ": a task posts itself again and again; use a timer for that, and "
                           "advanceTimeBy()");
  }
}

void EmbeddedChannel::advanceTimeBy(Duration step) {
  runPendingTasks();  // timers that wait to be set count from now
  parts_->clock.advance(step);
  runPendingTasks();
}

ManualClock& EmbeddedChannel::clock() noexcept { return parts_->clock; }

// --- the end ---

Future<void> EmbeddedChannel::close() {
  return run([this] { return Channel::close(); });
}

bool EmbeddedChannel::finish() {
  close();
  checkException();
  return inboundSize() != 0 || outboundSize() != 0;
}

void EmbeddedChannel::checkException() {
  if (const Error error = takeException()) error.raise();
}

Error EmbeddedChannel::takeException() {
  if (parts_->errors.empty()) return {};
  Error first = std::move(parts_->errors.front());
  parts_->errors.pop_front();
  return first;
}

void EmbeddedChannel::unhandledError(const Error& error) noexcept {
  parts_->errors.push_back(error);
}

// --- looking ---

SocketAddress EmbeddedChannel::localAddress() const { return parts_->local; }
SocketAddress EmbeddedChannel::remoteAddress() const { return parts_->remote; }
std::size_t EmbeddedChannel::inboundSize() const noexcept { return parts_->inbound.size(); }
std::size_t EmbeddedChannel::outboundSize() const noexcept { return parts_->outbound.size(); }
std::size_t EmbeddedChannel::waitingSize() const noexcept { return parts_->waiting.size(); }
bool EmbeddedChannel::isOutputShutdown() const noexcept { return parts_->outputEnded; }

std::int64_t EmbeddedChannel::liveBuffers() {
  return run([this] { return LoopChannels::of(loop()).pool().figures().live; });
}

}  // namespace millrace
