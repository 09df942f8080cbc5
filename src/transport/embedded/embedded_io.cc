// SPDX-License-Identifier: Apache-2.0
// The network of an EmbeddedChannel: two queues instead of a peer.
#include "channel/channel_fast.h"
#include "loop/readable_name.h"
#include "transport/embedded/embedded_parts.h"

#include <millrace/channel/outbound_buffer.h>

#include <algorithm>
#include <stdexcept>

namespace millrace {

namespace {

Message takeFirst(std::deque<Message>& queue) {
  if (queue.empty()) return {};
  Message first = std::move(queue.front());
  queue.pop_front();
  return first;
}

// Without a question anything will do.
Message takeFirst(std::deque<Message>& queue, const char* call, const std::type_info& wanted,
                  bool (*isWanted)(const Message&) noexcept) {
  if (!queue.empty() && isWanted != nullptr && !isWanted(queue.front())) {
    throw std::logic_error(std::string(call) + "<" + readableName(wanted) +
                           ">(): the next message is a " + readableName(queue.front().type()));
  }
  return takeFirst(queue);
}

std::string textOf(std::deque<Message>& queue, const char* call) {
  std::string text;
  while (!queue.empty()) {
    const ByteBuf* bytes = queue.front().as<ByteBuf>();
    if (bytes == nullptr) {
      throw std::logic_error(std::string(call) + "(): there is a " +
                             readableName(queue.front().type()) + " behind " +
                             std::to_string(text.size()) + " bytes");
    }
    text += bytes->text();
    queue.pop_front();
  }
  return text;
}

}  // namespace

// --- life ---

Result<void> EmbeddedChannel::doRegister() { return {}; }
bool EmbeddedChannel::isActiveNow() const noexcept { return parts_->connected; }
void EmbeddedChannel::doClose() noexcept { parts_->waiting.clear(); }

Result<void> EmbeddedChannel::doBind(const SocketAddress& local) {
  parts_->local = local;
  parts_->connected = true;
  return {};
}

Result<bool> EmbeddedChannel::doConnect(const SocketAddress& remote, const SocketAddress& local) {
  if (local) parts_->local = local;
  parts_->remote = remote;
  parts_->connected = !parts_->holdsConnects;
  return parts_->connected;
}

void EmbeddedChannel::holdConnects() { parts_->holdsConnects = true; }

void EmbeddedChannel::finishConnect(const Error& failure) {
  run([&] {
    parts_->connected = !failure;
    connectDone(failure);
  });
}

// --- inbound ---

void EmbeddedChannel::arrive(Message msg) {
  if (isOpen()) parts_->waiting.push_back(std::move(msg));
}

bool EmbeddedChannel::deliver() {
  run([this] { readWaiting(); });
  if (!loop().inEventLoop()) checkException();
  return inboundSize() != 0;
}

void EmbeddedChannel::readWaiting() {
  Parts& parts = *parts_;
  if (parts.reading) return;  // whoever reads goes on
  const Scope scope(*this);
  parts.reading = true;
  while (!parts.waiting.empty() && beginBurst()) {
    do {
      pipeline().fireChannelRead(takeFirst(parts.waiting));
    } while (!parts.waiting.empty() && mayContinueBurst());
    endBurst(true);
  }
  parts.reading = false;
  if (parts.inputEnds && parts.waiting.empty() && mayReadOn()) inputEnded();
}

void EmbeddedChannel::doBeginRead() {
  if (parts_->reading || (parts_->waiting.empty() && !parts_->inputEnds)) return;
  loop().execute([this] { readWaiting(); });
}

void EmbeddedChannel::writeOneInbound(Message msg) {
  run([&] { pipeline().fireChannelRead(std::move(msg)); });
  if (!loop().inEventLoop()) checkException();
}

bool EmbeddedChannel::flushInbound() {
  run([this] { pipeline().fireChannelReadComplete(); });
  if (!loop().inEventLoop()) checkException();
  return inboundSize() != 0;
}

void EmbeddedChannel::endInput() {
  parts_->inputEnds = true;
  run([this] { readWaiting(); });
}

// Later, for those who call it while the channel writes.
void EmbeddedChannel::breakWith(const Error& error) {
  loop().execute([this, error] { failWith(error); });
  if (!loop().inEventLoop()) runPendingTasks();
}

void EmbeddedChannel::unhandledRead(Message& msg) noexcept {
  parts_->inbound.push_back(std::move(msg));
}

void EmbeddedChannel::unhandledEvent(Message& event) noexcept {
  parts_->userEvents.push_back(std::move(event));
}

Message EmbeddedChannel::nextInbound(const std::type_info& wanted, Question isWanted) {
  return takeFirst(parts_->inbound, "readInbound", wanted, isWanted);
}

std::string EmbeddedChannel::inboundText() { return textOf(parts_->inbound, "inboundText"); }
Message EmbeddedChannel::readUserEvent() { return takeFirst(parts_->userEvents); }

// --- outbound ---

void EmbeddedChannel::writeAndNote(Message msg) {
  const Future<void> written = writeOneOutbound(std::move(msg));
  written.addListener([this](const Result<void>& result) {
    if (!result) parts_->errors.push_back(result.error());
  });
}

Future<void> EmbeddedChannel::writeOneOutbound(Message msg) {
  Promise<void> promise(loop());
  Future<void> future = promise.future();
  run([&] { write(std::move(msg), std::move(promise)); });
  return future;
}

bool EmbeddedChannel::flushOutbound() {
  run([this] { flush(); });
  if (!loop().inEventLoop()) checkException();
  return outboundSize() != 0;
}

Message EmbeddedChannel::nextOutbound(const std::type_info& wanted, Question isWanted) {
  return takeFirst(parts_->outbound, "readOutbound", wanted, isWanted);
}

std::string EmbeddedChannel::outboundText() { return textOf(parts_->outbound, "outboundText"); }

void EmbeddedChannel::stall() { parts_->room = 0; }
void EmbeddedChannel::resume() { takeBytes(Parts::kNoLimit); }

void EmbeddedChannel::takeBytes(std::size_t bytes) {
  parts_->room = bytes;
  run([this] {
    const Scope scope(*this);
    flushAgain();
  });
}

void EmbeddedChannel::failNextWrites(const Error& error, std::size_t count) {
  parts_->failure = error;
  parts_->failures = count;
}

void EmbeddedChannel::breakNextWrite(int errnoValue) { parts_->brokenBy = errnoValue; }

Result<void> EmbeddedChannel::doShutdownOutput() {
  parts_->outputEnded = true;
  return {};
}

int EmbeddedChannel::doWrite(OutboundBuffer& out) {
  Parts& parts = *parts_;
  if (parts.brokenBy != 0) return std::exchange(parts.brokenBy, 0);
  while (isOpen() && out.hasFlushed()) {
    if (parts.failures != 0) {
      --parts.failures;
      out.removeFront(parts.failure);
      continue;
    }
    if (parts.room == 0) {
      kernelIsFull();
      return 0;
    }
    Message& first = out.flushed();
    if (first.is<ByteBuf>()) {
      writeBytes(out);
    } else {
      parts.outbound.push_back(std::move(first));
      out.removeFront();
    }
  }
  return 0;
}

// As much of the first ByteBuf as the peer takes. What has no bytes and no memory stands for a
// message whose promise was cancelled.
void EmbeddedChannel::writeBytes(OutboundBuffer& out) {
  Parts& parts = *parts_;
  ByteBuf& bytes = *out.flushed().as<ByteBuf>();
  const std::size_t count = std::min(bytes.readableBytes(), parts.room);
  if (parts.room != Parts::kNoLimit) parts.room -= count;
  if (count == bytes.readableBytes()) {
    if (bytes.storage() != nullptr) parts.outbound.push_back(std::move(out.flushed()));
    out.removeFront();
  } else {
    parts.outbound.push_back(bytes.slice(bytes.readerIndex(), count));
    out.removeBytes(count);
  }
}

}  // namespace millrace
