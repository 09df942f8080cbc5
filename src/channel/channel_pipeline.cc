// SPDX-License-Identifier: Apache-2.0
#include "channel/channel_fast.h"
#include "channel/channel_hop.h"
#include "loop/readable_name.h"

#include <millrace/channel/channel.h>
#include <millrace/channel/channel_pipeline.h>
#include <millrace/loop/event_loop.h>

#include <stdexcept>
#include <utility>

namespace millrace {

namespace internal {

void ContextDeleter::operator()(Context* context) const noexcept {
  ChannelPipeline::destroy(context);
}

}  // namespace internal

void ChannelPipeline::destroy(Context* context) noexcept { context->type_->destroy(context); }

// By now the channel is closed. Handlers are still here only if it never was registered.
ChannelPipeline::~ChannelPipeline() {
  while (first_ != nullptr) {
    Context* context = std::exchange(first_, first_->next_);
    destroy(context);
  }
}

void ChannelPipeline::checkHandler(const ChannelHandler* handler) {
  if (handler == nullptr) {
    throw std::invalid_argument("a pipeline was given a null pointer; give it a handler");
  }
}

// --- whose turn it is to change things ---

// Before the registration begins, the channel belongs to whoever makes it.
bool ChannelPipeline::mayChangeHere() const noexcept {
  return channel_.inLoop() || !channel_.has(Channel::kTouched);
}

void ChannelPipeline::checkMayLook(const char* call) const {
  if (mayChangeHere()) return;
  throw std::logic_error(std::string("pipeline.") + call + "() of " + channel_.describe() +
                         " belongs to " + channel_.loop().name() +
                         "; look from a handler, or by loop.submit()");
}

template <class Change>
void ChannelPipeline::change(Change&& change) {
  if (mayChangeHere()) {
    const Channel::Scope scope(channel_);
    change();
    return;
  }
  channel_.hop([this, change = std::forward<Change>(change)]() mutable {
    const Channel::Scope scope(channel_);
    try {
      change();
    } catch (...) {
      fireExceptionCaught(Error::fromCurrentException("pipeline"));
    }
  });
}

// --- adding ---

void ChannelPipeline::insert(internal::ContextOwner context, std::string_view name, Where where,
                             std::string_view base, const ChannelHandler* baseHandler) {
  if (mayChangeHere()) {
    const Channel::Scope scope(channel_);
    insertNow(std::move(context), name, where, base, baseHandler);
    return;
  }
  change([this, context = std::move(context), name = std::string(name), where,
          base = std::string(base), baseHandler]() mutable {
    insertNow(std::move(context), name, where, base, baseHandler);
  });
}

void ChannelPipeline::insertNow(internal::ContextOwner context, std::string_view name, Where where,
                                std::string_view base, const ChannelHandler* baseHandler) {
  if (channel_.has(Channel::kTouched) && !channel_.isOpen()) {
    throw std::invalid_argument("pipeline of " + channel_.describe() +
                                ": the channel is closed, no handler can be added");
  }
  Context* other = nullptr;
  if (baseHandler != nullptr) {
    other = &require(*baseHandler);
  } else if (where != Where::first && where != Where::last) {
    other = &require(base);
  }
  if (!name.empty()) {
    const Context* taken = this->context(name);
    if (taken != nullptr && !(where == Where::inPlaceOf && taken == other)) {
      throw std::invalid_argument("pipeline of " + channel_.describe() + ": the name \"" +
                                  std::string(name) + "\" is taken");
    }
    context->name_ = std::make_unique<std::string>(name);
  }
  Context& added = *context.release();
  switch (where) {
    case Where::first:
      link(added, nullptr, first_);
      break;
    case Where::last:
      link(added, last_, nullptr);
      break;
    case Where::before:
      link(added, other->previous_, other);
      break;
    case Where::after:
      link(added, other, other->next_);
      break;
    case Where::inPlaceOf:
      link(added, other, other->next_);
      break;
  }
  if (channel_.isRegistered()) callAdded(added);
  // The new one may have taken the old one out by itself.
  if (where != Where::inPlaceOf || other->state_ == Context::State::removed) return;
  unlink(*other);
  // What the old one still passes on in handlerRemoved() goes to the new one, either way.
  if (added.state_ != Context::State::removed) other->next_ = other->previous_ = &added;
  callRemoved(*other);
  bury(*other);
}

void ChannelPipeline::link(Context& context, Context* before, Context* after) noexcept {
  context.previous_ = before;
  context.next_ = after;
  (before == nullptr ? first_ : before->next_) = &context;
  (after == nullptr ? last_ : after->previous_) = &context;
  events_ |= context.mask_;
}

// Its own links stay: it may be on the stack, and passes events on to where it stood.
void ChannelPipeline::unlink(Context& context) noexcept {
  (context.previous_ == nullptr ? first_ : context.previous_->next_) = context.next_;
  (context.next_ == nullptr ? last_ : context.next_->previous_) = context.previous_;
  collectEvents();
}

void ChannelPipeline::collectEvents() noexcept {
  events_ = 0;
  for (const Context* each = first_; each != nullptr; each = each->next_) events_ |= each->mask_;
}

void ChannelPipeline::callAdded(Context& context) noexcept {
  context.state_ = Context::State::added;
  try {
    context.handler_->handlerAdded(context);
  } catch (...) {
    const Error error = Error::fromCurrentException("handlerAdded() of " + context.name());
    if (context.state_ != Context::State::removed) {
      unlink(context);
      callRemoved(context);
      bury(context);
    }
    fireExceptionCaught(error);
  }
}

// For those that were added before the channel was registered. They may add and remove others.
void ChannelPipeline::callPendingAdded() noexcept {
  for (;;) {
    Context* each = first_;
    while (each != nullptr && each->state_ != Context::State::fresh) each = each->next_;
    if (each == nullptr) return;
    callAdded(*each);
  }
}

// --- removing ---

// The handler's last call. Events pass it by from now on.
void ChannelPipeline::callRemoved(Context& context) noexcept {
  const bool wasAdded = context.state_ == Context::State::added;
  context.state_ = Context::State::removed;
  context.mask_ = 0;
  if (!wasAdded) return;
  try {
    context.handler_->handlerRemoved(context);
  } catch (...) {
    fireExceptionCaught(Error::fromCurrentException("handlerRemoved() of " + context.name()));
  }
}

void ChannelPipeline::removeNow(Context& context) {
  const Channel::Scope scope(channel_);
  unlink(context);
  callRemoved(context);
  bury(context);
}

// Kept until no callback of the channel is on the stack.
void ChannelPipeline::bury(Context& context) noexcept {
  context.buriedBefore_ = std::exchange(channel_.buried_, &context);
  channel_.mustSettle_ = true;
}

void ChannelPipeline::freeBuried() noexcept {
  while (Context* context = channel_.buried_) {
    channel_.buried_ = context->buriedBefore_;
    destroy(context);
  }
}

// From the last to the first, so that each still has those it writes to.
void ChannelPipeline::removeAll() noexcept {
  while (last_ != nullptr) removeNow(*last_);
}

void ChannelPipeline::remove(std::string_view name) {
  change([this, name = std::string(name)] { removeNow(require(name)); });
}

void ChannelPipeline::remove(const ChannelHandler& handler) {
  change([this, which = &handler] { removeNow(require(*which)); });
}

void ChannelPipeline::removeByType(const std::type_info& type) {
  change([this, &type] {
    Context* found = contextOf(type);
    if (found == nullptr) {
      throw std::invalid_argument("pipeline of " + channel_.describe() + " has no " +
                                  readableName(type));
    }
    removeNow(*found);
  });
}

bool ChannelPipeline::removeIfExists(std::string_view name) {
  Context* found = context(name);
  if (found != nullptr) removeNow(*found);
  return found != nullptr;
}

bool ChannelPipeline::removeIfExists(const ChannelHandler& handler) {
  Context* found = context(handler);
  if (found != nullptr) removeNow(*found);
  return found != nullptr;
}

// --- looking ---

Context* ChannelPipeline::first() const {
  checkMayLook("first");
  return first_;
}

Context* ChannelPipeline::last() const {
  checkMayLook("last");
  return last_;
}

Context* ChannelPipeline::context(std::string_view name) const {
  checkMayLook("context");
  for (Context* each = first_; each != nullptr; each = each->next_) {
    if (each->name_ != nullptr ? *each->name_ == name : each->name() == name) return each;
  }
  return nullptr;
}

Context* ChannelPipeline::context(const ChannelHandler& handler) const {
  checkMayLook("context");
  for (Context* each = first_; each != nullptr; each = each->next_) {
    if (each->handler_ == &handler) return each;
  }
  return nullptr;
}

Context* ChannelPipeline::contextOf(const std::type_info& type) const {
  checkMayLook("get");
  for (Context* each = first_; each != nullptr; each = each->next_) {
    if (*each->type_->type == type) return each;
  }
  return nullptr;
}

Context& ChannelPipeline::require(std::string_view name) const {
  if (Context* found = context(name)) return *found;
  throw std::invalid_argument("pipeline of " + channel_.describe() + " has no handler \"" +
                              std::string(name) + "\"");
}

Context& ChannelPipeline::require(const ChannelHandler& handler) const {
  if (Context* found = context(handler)) return *found;
  throw std::invalid_argument("pipeline of " + channel_.describe() + " does not have this handler");
}

ChannelHandler* ChannelPipeline::get(std::string_view name) const {
  Context* found = context(name);
  return found == nullptr ? nullptr : found->handler_;
}

std::vector<std::string> ChannelPipeline::names() const {
  checkMayLook("names");
  std::vector<std::string> names;
  for (Context* each = first_; each != nullptr; each = each->next_) names.push_back(each->name());
  return names;
}

std::size_t ChannelPipeline::size() const {
  checkMayLook("size");
  std::size_t count = 0;
  for (Context* each = first_; each != nullptr; each = each->next_) ++count;
  return count;
}

}  // namespace millrace
