// SPDX-License-Identifier: Apache-2.0
#include "loop/parking/parking_handler.h"
#include "loop/readiness/readiness_handler.h"

#include <millrace/base/log.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_attachment.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#if MILLRACE_HAS_URING
#include "sys/uring.h"
#endif

namespace millrace {

IoHandler::~IoHandler() = default;
LoopAttachment::~LoopAttachment() = default;
void IoClient::completed(const RingCompletion&) noexcept {}

namespace {

IoSupport supportFor(const io::RingSizes& sizes) {
#if MILLRACE_HAS_URING
  UringSupport found;
  const auto probe = [&] {
    found = probeUring(
        {static_cast<unsigned>(sizes.entries), static_cast<unsigned>(sizes.completions)});
  };
  try {
    std::thread(probe).join();
  } catch (const std::system_error&) {
    probe();  // there is no thread to be had
  }
  return {found.usable, found.deferred, found.why};
#else
  static_cast<void>(sizes);
  return {false, false, "built without io_uring"};
#endif
}

}  // namespace

IoSupport ioSupport() { return supportFor({}); }

namespace io {

const IoType epollType{"epoll"};
const IoType uringType{"uring"};
const IoType pollType{"poll"};
const IoType blockingType{"blocking"};
const IoType parkingType{"parking"};

namespace {

IoFactory insteadOfUring(const std::string& why) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) log(LogLevel::warn, "loop", "io_uring is not used, epoll is: ", why);
  return epoll();
}

}  // namespace

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

IoFactory uring(RingSizes sizes) {
  if (sizes.entries < 1 || sizes.completions < sizes.entries) {
    throw std::invalid_argument("io::uring(): " + std::to_string(sizes.entries) + " entries and " +
                                std::to_string(sizes.completions) +
                                " completions; it needs 1 or more, and no fewer completions");
  }
  const IoSupport found = supportFor(sizes);
  if (!found.uring) return insteadOfUring(found.why);
#if MILLRACE_HAS_URING
  return {&uringType, [sizes] {
            return ReadinessHandler::make(
                uringType, [sizes] { return openUringSelector(sizes.entries, sizes.completions); });
          }};
#else
  return epoll();  // nobody comes here
#endif
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
  if (name == "uring") return uring();
  if (name == "poll") return poll();
  if (name == "blocking") return blocking();
  if (name == "parking") return parking();
  throw std::invalid_argument("no engine is called \"" + std::string(name) +
                              "\"; use automatic, epoll, uring, poll, blocking or parking");
}

IoFactory automatic() {
  const char* wanted = std::getenv("MILLRACE_IO");
  if (wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == "automatic")
    return epoll();
  try {
    return byName(wanted);
  } catch (const std::invalid_argument& unknown) {
    throw std::invalid_argument(std::string("the environment variable MILLRACE_IO: ") +
                                unknown.what());
  }
}

}  // namespace io

}  // namespace millrace
