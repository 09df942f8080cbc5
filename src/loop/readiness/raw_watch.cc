// SPDX-License-Identifier: Apache-2.0
#include "loop/readiness/raw_watch.h"

#include <millrace/sys/events.h>

namespace millrace {

namespace {

std::string bitsToText(std::uint32_t events) {
  std::string text;
  const auto add = [&](std::uint32_t bit, const char* name) {
    if ((events & bit) == 0) return;
    if (!text.empty()) text += '|';
    text += name;
  };
  add(kReadable, "readable");
  add(kWritable, "writable");
  add(kUrgent, "urgent");
  add(kPeerClosed, "peer closed");
  return text.empty() ? "paused" : text;
}

}  // namespace

void RawWatch::ready(std::uint32_t events) noexcept {
  ++busy_;
  const std::type_info& what = request_.callback.target_type();
  owner_.loop()->callbackBegins(what);
  try {
    request_.callback(request_.fd, events);
  } catch (...) {
    owner_.loop()->callbackFailed(what);
    if (!ended_) {
      stop();
      tell(Error::fromCurrentException("watch callback"));
    }
  }
  leave();
}

void RawWatch::lost(const Error& why) noexcept {
  ++busy_;
  ended_ = true;
  tell(why);
  leave();
}

void RawWatch::shuttingDown() noexcept {
  ++busy_;
  stop();
  tell(Error(Errc::closed, "watch", "the loop shuts down"));
  leave();
}

void RawWatch::end() noexcept {
  ++busy_;
  stop();
  leave();
}

void RawWatch::stop() noexcept {
  ended_ = true;
  owner_.unregister(*this);
}

void RawWatch::tell(const Error& why) noexcept {
  if (!request_.onEnd) return;
  try {
    request_.onEnd(why);
  } catch (...) {
    if (IoLoop* loop = owner_.loop()) loop->callbackFailed(request_.onEnd.target_type());
  }
}

void RawWatch::leave() noexcept {
  if (--busy_ == 0 && ended_) delete this;
}

std::string RawWatch::describeClient() const {
  return "watch of descriptor " + std::to_string(request_.fd) + ": " + bitsToText(request_.events) +
         (request_.trigger == Trigger::edge ? ", edge" : ", level");
}

}  // namespace millrace
