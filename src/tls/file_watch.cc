// SPDX-License-Identifier: Apache-2.0
// Certificates that change on disk. Files are looked at every so often instead of being watched by the kernel:
// that sees renames, swapped links and network file systems alike.
#include "tls/context_core.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/loop/event_loop.h>
#include <millrace/tls/tls_context.h>

#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace millrace {

namespace {

std::vector<std::string> filesOf(const tls::Settings& settings) {
  std::vector<std::string> paths;
  const auto add = [&paths](const TlsIdentity& identity) {
    if (!identity.isFile()) return;
    paths.push_back(identity.chain());
    paths.push_back(identity.key());
  };
  if (settings.identity) add(*settings.identity);
  for (const auto& each : settings.named) add(each.identity);
  if (settings.trust && settings.trust->kind() == TlsTrust::Kind::file) {
    paths.push_back(settings.trust->source());
  }
  return paths;
}

/// Different as soon as one of the files is.
std::string marksOf(const std::vector<std::string>& paths) {
  std::string marks;
  for (const std::string& path : paths) {
    struct stat found {};
    const bool exists = ::stat(path.c_str(), &found) == 0;
    for (const auto number :
         {exists ? static_cast<long long>(found.st_ino) : -1LL,
          static_cast<long long>(found.st_size), static_cast<long long>(found.st_mtim.tv_sec),
          static_cast<long long>(found.st_mtim.tv_nsec),
          static_cast<long long>(found.st_ctim.tv_sec),
          static_cast<long long>(found.st_ctim.tv_nsec)}) {
      marks += std::to_string(number) + " ";
    }
  }
  return marks;
}

}  // namespace

struct TlsFileWatch::State {
  TlsContext context;
  std::string marks;
  ScheduledFuture timer;

  void look() {
    const std::shared_ptr<const tls::Snapshot> now = context.core().snapshot();
    std::string found = marksOf(filesOf(now->settings));
    if (found == marks) return;
    marks = std::move(found);  // a failure is not tried again until something changes
    if (const Result<void> loaded = context.reload(); loaded) {
      log(LogLevel::info, "tls", "certificates were read again");
    } else {
      log(LogLevel::error, "tls", "certificates stay as they were: ", loaded.error().message());
    }
  }
};

TlsFileWatch::TlsFileWatch() noexcept = default;
TlsFileWatch::TlsFileWatch(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
TlsFileWatch::TlsFileWatch(TlsFileWatch&& other) noexcept = default;
TlsFileWatch& TlsFileWatch::operator=(TlsFileWatch&& other) noexcept {
  if (this != &other) {
    stop();
    state_ = std::move(other.state_);
  }
  return *this;
}
TlsFileWatch::~TlsFileWatch() { stop(); }

void TlsFileWatch::stop() noexcept {
  if (state_ && state_->timer.valid()) state_->timer.cancel();
  state_.reset();
}

TlsFileWatch TlsContext::watchFiles(EventLoop& loop, Duration every) {
  if (every.count() <= 0)
    throw std::invalid_argument("TlsContext::watchFiles() needs a time above 0");
  auto state = std::make_shared<TlsFileWatch::State>(TlsFileWatch::State{*this, {}, {}});
  state->marks = marksOf(filesOf(core_->snapshot()->settings));
  state->timer = loop.scheduleWithFixedDelay(every, every, [weak = std::weak_ptr(state)] {
    if (const auto self = weak.lock()) self->look();
  });
  return TlsFileWatch(std::move(state));
}

}  // namespace millrace
