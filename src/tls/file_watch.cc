// SPDX-License-Identifier: Apache-2.0
// Certificates that change on disk. Files are looked at every so often instead of being watched by the kernel:
// that sees renames, swapped links and network file systems alike.
#include "tls/context_core.h"
#include "tls/file_marks.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/loop/event_loop.h>
#include <millrace/tls/tls_context.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

struct TlsFileWatch::State {
  TlsContext context;
  std::string tried;  // what was there when it was read last
  ScheduledFuture timer;

  void look() {
    const std::shared_ptr<const tls::Snapshot> now = context.core().snapshot();
    std::string found = tls::marksOfFiles(now->settings);
    if (found == now->marks) return;
    // A failure is tried again, since it may pass (no descriptors, a certificate that is good from now on), but
    // told only once.
    const bool isNews = found != tried;
    tried = std::move(found);
    if (const Result<void> loaded = context.reload(); loaded) {
      log(LogLevel::info, "tls", "certificates were read again");
    } else if (isNews) {
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
  state->timer = loop.scheduleWithFixedDelay(every, every, [weak = std::weak_ptr(state)] {
    if (const auto self = weak.lock()) self->look();
  });
  return TlsFileWatch(std::move(state));
}

}  // namespace millrace
