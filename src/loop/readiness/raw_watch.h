// SPDX-License-Identifier: Apache-2.0
// RawWatch: a descriptor that a user watches, as a client of the readiness engine. Loop thread only.
#pragma once

#include <millrace/loop/io_handler.h>
#include <millrace/loop/readiness_io.h>

#include <cstdint>
#include <string>

namespace millrace {

/// Owns itself: goes when it has ended and its callback is not on the stack any more.
class RawWatch final : public IoClient {
 public:
  /// What a watch asks of the engine it is on.
  class Owner {
   public:
    /// Takes the watch out of the table.
    virtual void unregister(RawWatch& watch) noexcept = 0;
    /// The loop that drives the engine; null after its end.
    virtual IoLoop* loop() const noexcept = 0;

   protected:
    ~Owner() = default;
  };

  RawWatch(Owner& owner, WatchRequest request) : owner_(owner), request_(std::move(request)) {}

  void ready(std::uint32_t events) noexcept override;
  void lost(const Error& why) noexcept override;
  void shuttingDown() noexcept override;
  std::string describeClient() const override;

  /// Ends it without telling.
  void end() noexcept;

  std::uint64_t id = 0;  // its registration
  std::uint32_t events() const noexcept { return request_.events; }
  void setEvents(std::uint32_t events) noexcept { request_.events = events; }
  int fd() const noexcept { return request_.fd; }
  Trigger trigger() const noexcept { return request_.trigger; }

 private:
  ~RawWatch() = default;
  void stop() noexcept;
  void tell(const Error& why) noexcept;
  void leave() noexcept;

  Owner& owner_;
  WatchRequest request_;
  int busy_ = 0;  // callbacks on the stack
  bool ended_ = false;
};

}  // namespace millrace
