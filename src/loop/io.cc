// SPDX-License-Identifier: Apache-2.0
#include "loop/parking/parking_handler.h"
#include "loop/readiness/readiness_handler.h"

#include <millrace/loop/io.h>
#include <millrace/loop/loop_attachment.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace millrace {

IoHandler::~IoHandler() = default;
LoopAttachment::~LoopAttachment() = default;

namespace io {

const IoType epollType{"epoll"};
const IoType pollType{"poll"};
const IoType blockingType{"blocking"};
const IoType parkingType{"parking"};

IoFactory epoll(EventArray events) {
  if (events.initial < 1) {
    throw std::invalid_argument("io::epoll(): an event array of " + std::to_string(events.initial) +
                                "; it needs room for 1 or more");
  }
  return {&epollType, [events] {
            return ReadinessHandler::make(
                epollType, [events] { return openEpollSelector(events.initial, events.grows); });
          }};
}

IoFactory poll() {
  return {&pollType,
          [] { return ReadinessHandler::make(pollType, [] { return openPollSelector(); }); }};
}

// Waits as poll does; it is the channels that block.
IoFactory blocking() {
  return {&blockingType,
          [] { return ReadinessHandler::make(blockingType, [] { return openPollSelector(); }); },
          true};
}

IoFactory parking() {
  return {&parkingType, [] { return Result<std::unique_ptr<IoHandler>>(makeParkingHandler()); }};
}

IoFactory byName(std::string_view name) {
  if (name == "automatic") return automatic();
  if (name == "epoll") return epoll();
  if (name == "poll") return poll();
  if (name == "blocking") return blocking();
  if (name == "parking") return parking();
  throw std::invalid_argument("no engine is called \"" + std::string(name) +
                              "\"; use automatic, epoll, poll, blocking or parking");
}

IoFactory automatic() {
  const char* wanted = std::getenv("MILLRACE_IO");
  if (wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == "automatic")
    return epoll();
  return byName(wanted);
}

}  // namespace io

}  // namespace millrace
