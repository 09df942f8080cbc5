// SPDX-License-Identifier: Apache-2.0
#include "tls/warm_sessions.h"

#include "tls/session.h"

#include <millrace/base/attribute_map.h>
#include <millrace/loop/event_loop.h>

#include <utility>

namespace millrace::tls {

namespace {

const AttributeKey<WarmSessions> kWarm{"tls.warm sessions"};

}  // namespace

std::shared_ptr<WarmSessions> WarmSessions::of(EventLoop& loop) {
  return loop.attributes().getOrCreate(kWarm, [] { return std::make_shared<WarmSessions>(); });
}

void WarmSessions::use(EventLoop& loop, Session& session, Place& place) {
  std::shared_ptr<WarmSessions> all = of(loop);
  const std::size_t index = all->next_++ % kPlaces;
  if (Place* before = all->places_[index]) before->leave();
  all->places_[index] = &place;
  session.keepBuffers(true);
  place.session_ = &session;
  place.index_ = index;
  place.owner_ = std::move(all);
}

void WarmSessions::Place::leave() noexcept {
  if (session_ == nullptr) return;
  owner_->places_[index_] = nullptr;
  std::exchange(session_, nullptr)->keepBuffers(false);
  owner_.reset();
}

}  // namespace millrace::tls
