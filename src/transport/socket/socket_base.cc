// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/socket_base.h"

#include <millrace/sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

namespace millrace {

// --- blocking calls ---

namespace {

/// So long a call may keep the loop from its tasks and its end.
constexpr timeval kBlockingLimit{0, 100'000};

}  // namespace

Result<void> SocketHandle::makeBlocking() {
  if (Result<void> set = setBlocking(fd_.get(), Blocking::yes); !set) return set;
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    if (Result<void> set =
            setOptionBytes(fd_.get(), SOL_SOCKET, option, &kBlockingLimit, sizeof kBlockingLimit);
        !set) {
      return set;
    }
  }
  flags_ = MSG_NOSIGNAL;
  return {};
}

Result<void> SocketHandle::letKernelWait() {
  if (kernelWaits_) return {};
  Result<void> set = setBlocking(fd_.get(), Blocking::yes);
  kernelWaits_ = set.ok();
  return set;
}

Result<void> SocketHandle::neverWait() {
  if (!kernelWaits_) return {};
  Result<void> set = setBlocking(fd_.get(), Blocking::no);
  kernelWaits_ = !set.ok();
  return set;
}

// --- registration ---

Result<void> SocketHandle::add(ReadinessIo& io, std::uint32_t events, IoClient& client) {
  edge_ = io.isEdge();
  interest_ = edge_ ? events : 0;
  Result<std::uint64_t> id =
      io.add(fd_.get(), interest_, edge_ ? Trigger::edge : Trigger::level, client);
  if (!id) return id.error();
  io_ = &io;
  id_ = *id;
  return {};
}

Result<void> SocketHandle::want(std::uint32_t events) {
  if (id_ == 0 || (interest_ & events) == events) return {};
  Result<void> changed = io_->modify(id_, interest_ | events);
  if (changed) interest_ |= events;
  return changed;
}

void SocketHandle::unwant(std::uint32_t events) noexcept {
  if (edge_ || id_ == 0 || (interest_ & events) == 0) return;
  interest_ &= ~events;
  static_cast<void>(io_->modify(id_, interest_));  // wanting less cannot fail in a way that matters
}

void SocketHandle::again() {
  if (listed_ || id_ == 0) return;
  listed_ = true;
  io_->again(id_);
}

void SocketHandle::remove() noexcept {
  if (id_ == 0) return;
  io_->remove(std::exchange(id_, 0));
  listed_ = false;
  interest_ = 0;
}

void SocketHandle::leave() noexcept {
  if (id_ == 0) return;
  remove();
  io_->letGo();
}

bool isForeign(int error) noexcept { return error == EBADF || error == ENOTSOCK; }

void SocketHandle::disown() noexcept {
  if (id_ != 0) io_->removeClosed(std::exchange(id_, 0));
  foreign_ = true;
}

void SocketHandle::close() noexcept {
  if (id_ != 0) io_->removeClosed(std::exchange(id_, 0));
  if (foreign_) {
    static_cast<void>(fd_.release());
  } else {
    fd_.reset();
  }
}

// --- options ---

namespace {

using Form = OptionKey::Form;

Duration unitOf(Form form) noexcept {
  if (form == Form::seconds) return std::chrono::seconds(1);
  if (form == Form::millis) return std::chrono::milliseconds(1);
  return std::chrono::microseconds(1);
}

std::string operation(const char* what, const OptionKey& key) {
  return std::string(what) + " " + std::string(key.name());
}

Error withName(const Error& error, const char* what, const OptionKey& key) {
  return Error(error.code(), operation(what, key));
}

/// In the kernel's unit, rounded up: a timeout that is asked for is not cut to none.
int inUnits(Duration value, Form form) {
  const Duration unit = unitOf(form);
  return static_cast<int>((value.count() + unit.count() - 1) / unit.count());
}

}  // namespace

Result<void> setSocketOption(int fd, const OptionKey& key, const OptionValue& value) {
  Result<void> set;
  switch (key.form()) {
    case Form::none:
      return Error(Errc::notSupported, operation("setOption", key));
    case Form::flag:
      set = setOption(fd, key.level(), key.number(), std::get<bool>(value) ? 1 : 0);
      break;
    case Form::number:
      set = setOption(fd, key.level(), key.number(), std::get<int>(value));
      break;
    case Form::linger: {
      const int seconds = std::get<int>(value);
      const struct linger raw = {seconds < 0 ? 0 : 1, seconds < 0 ? 0 : seconds};
      set = setOptionBytes(fd, key.level(), key.number(), &raw, sizeof raw);
      break;
    }
    case Form::seconds:
    case Form::millis:
    case Form::micros:
      set =
          setOption(fd, key.level(), key.number(), inUnits(std::get<Duration>(value), key.form()));
      break;
    case Form::text: {
      const auto& text = std::get<std::string>(value);
      set = setOptionBytes(fd, key.level(), key.number(), text.data(), text.size());
      break;
    }
  }
  if (set) return {};
  const int error = set.error().errnoValue();
  if (fd < 0 && error == EBADF) return Error(Errc::closed, operation("setOption", key));
  if (error == ENOPROTOOPT) return Error(Errc::notSupported, operation("setOption", key));
  return withName(set.error(), "setOption", key);
}

Result<OptionValue> getSocketOption(int fd, const OptionKey& key) {
  if (key.form() == Form::none) return Error(Errc::notSupported, operation("option", key));
  if (key.form() == Form::linger) {
    struct linger raw = {};
    Result<std::size_t> got = getOptionBytes(fd, key.level(), key.number(), &raw, sizeof raw);
    if (!got) return withName(got.error(), "option", key);
    return OptionValue(raw.l_onoff == 0 ? -1 : raw.l_linger);
  }
  if (key.form() == Form::text) {
    std::array<char, 64> raw{};
    Result<std::size_t> got = getOptionBytes(fd, key.level(), key.number(), raw.data(), raw.size());
    if (!got) return withName(got.error(), "option", key);
    return OptionValue(std::string(raw.data(), strnlen(raw.data(), *got)));
  }
  const Result<int> got = getOption(fd, key.level(), key.number());
  if (!got) return withName(got.error(), "option", key);
  if (key.form() == Form::flag) return OptionValue(*got != 0);
  if (key.form() == Form::number) return OptionValue(*got);
  return OptionValue(Duration(unitOf(key.form()).count() * *got));
}

}  // namespace millrace
