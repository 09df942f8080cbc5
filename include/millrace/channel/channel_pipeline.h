// SPDX-License-Identifier: Apache-2.0
// ChannelPipeline: the handlers of a channel, in order.
//
//   channel ──inbound──> first ──> second ──> last
//   channel <─outbound── first <── second <── last
//
//   pipeline.emplaceLast<EchoHandler>();                       // made here, owned by the pipeline
//   pipeline.addLast("log", std::make_shared<LoggingHandler>());   // shared: its class says so
//
// Threads: changes come from any thread; on the loop, and before the channel is registered, they
// happen at once, from elsewhere in the order of the calls. Looking things up belongs to the loop
// (or to the thread that makes the channel, before it is registered).
// Failure: a name that is taken, a handler that is not there: std::invalid_argument, on the loop;
// from another thread it arrives as exceptionCaught().
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/context.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace {

namespace internal {

template <class H>
concept SaysSharable = requires {
  { H::sharable } -> std::convertible_to<bool>;
};
template <class H>
constexpr bool isSharable() {
  if constexpr (SaysSharable<H>) return H::sharable;
  return false;
}

struct MILLRACE_API ContextDeleter {
  void operator()(Context* context) const noexcept;
};
using ContextOwner = std::unique_ptr<Context, ContextDeleter>;

}  // namespace internal

/// See the top of this file. Lives in its channel.
class MILLRACE_API ChannelPipeline {
 public:
  ChannelPipeline(const ChannelPipeline&) = delete;
  ChannelPipeline& operator=(const ChannelPipeline&) = delete;

  Channel& channel() const noexcept { return channel_; }

  // --- adding: a handler made in place, an owned one, or a shared one ---
  template <class H, class... Args>
  void emplaceLast(Args&&... args) {
    insert(emplaced<H>(std::forward<Args>(args)...), {}, Where::last, {});
  }
  template <class H, class... Args>
  void emplaceFirst(Args&&... args) {
    insert(emplaced<H>(std::forward<Args>(args)...), {}, Where::first, {});
  }
  template <class P>
  void addLast(P handler) {
    insert(pointing(std::move(handler)), {}, Where::last, {});
  }
  template <class P>
  void addLast(std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::last, {});
  }
  template <class P>
  void addFirst(P handler) {
    insert(pointing(std::move(handler)), {}, Where::first, {});
  }
  template <class P>
  void addFirst(std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::first, {});
  }
  /// Relative to the handler called `base`.
  template <class P>
  void addBefore(std::string_view base, std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::before, base);
  }
  template <class P>
  void addAfter(std::string_view base, std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::after, base);
  }

  // --- removing ---
  void remove(std::string_view name);
  void remove(const ChannelHandler& handler);
  /// False instead of a failure if there is none. Loop thread.
  bool removeIfExists(std::string_view name);
  bool removeIfExists(const ChannelHandler& handler);
  template <class H>
  bool removeIfExists() {
    Context* found = contextOf(typeid(H));
    if (found != nullptr) removeNow(*found);
    return found != nullptr;
  }
  /// The first handler of class `H`.
  template <class H>
  void remove() {
    removeByType(typeid(H));
  }
  /// The handler goes, another one comes to its place; an empty name is made up.
  template <class P>
  void replace(std::string_view old, std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::inPlaceOf, old);
  }
  template <class P>
  void replace(const ChannelHandler& old, std::string_view name, P handler) {
    insert(pointing(std::move(handler)), name, Where::inPlaceOf, {}, &old);
  }

  // --- looking; loop thread ---
  ChannelHandler* get(std::string_view name) const;
  /// The first handler that was added as an `H`, or null.
  template <class H>
  H* get() const {
    Context* found = contextOf(typeid(H));
    return found == nullptr ? nullptr : static_cast<H*>(&found->handler());
  }
  Context* context(std::string_view name) const;
  Context* context(const ChannelHandler& handler) const;
  Context* first() const;
  Context* last() const;
  /// From first to last.
  std::vector<std::string> names() const;
  std::size_t size() const;
  bool empty() const { return first_ == nullptr; }

  // --- events, from the channel's end; loop thread ---
  void fireChannelRegistered();
  void fireChannelUnregistered();
  void fireChannelActive();
  void fireChannelInactive();
  void fireChannelRead(Message&& msg);
  void fireChannelReadComplete();
  void fireUserEventTriggered(Message&& event);
  void fireChannelWritabilityChanged();
  void fireExceptionCaught(const Error& error);

 private:
  friend class Channel;
  friend class Context;
  friend struct internal::ContextDeleter;
  enum class Where : std::uint8_t { first, last, before, after, inPlaceOf };

  explicit ChannelPipeline(Channel& channel) noexcept : channel_(channel) {}
  ~ChannelPipeline();

  template <class H, class... Args>
  internal::ContextOwner emplaced(Args&&... args) {
    static_assert(std::is_base_of_v<ChannelHandler, H>, "a handler derives from ChannelHandler");
    return internal::ContextOwner(
        new internal::EmplacedContext<H>(channel_, std::forward<Args>(args)...));
  }
  template <class H>
  internal::ContextOwner pointing(std::unique_ptr<H> handler) {
    static_assert(std::is_base_of_v<ChannelHandler, H>, "a handler derives from ChannelHandler");
    checkHandler(handler.get());
    return internal::ContextOwner(
        new internal::PointingContext<H, std::unique_ptr<H>>(channel_, std::move(handler)));
  }
  template <class H>
  internal::ContextOwner pointing(std::shared_ptr<H> handler) {
    static_assert(std::is_base_of_v<ChannelHandler, H>, "a handler derives from ChannelHandler");
    static_assert(internal::isSharable<H>(),
                  "a handler that several pipelines may share says so: static constexpr bool "
                  "sharable = true; give others by std::unique_ptr or emplaceLast<H>()");
    checkHandler(handler.get());
    return internal::ContextOwner(
        new internal::PointingContext<H, std::shared_ptr<H>>(channel_, std::move(handler)));
  }

  static void destroy(Context* context) noexcept;
  static void checkHandler(const ChannelHandler* handler);
  void insert(internal::ContextOwner context, std::string_view name, Where where,
              std::string_view base, const ChannelHandler* baseHandler = nullptr);
  void insertNow(internal::ContextOwner context, std::string_view name, Where where,
                 std::string_view base, const ChannelHandler* baseHandler);
  template <class Change>
  void change(Change&& change);
  bool mayChangeHere() const noexcept;
  void checkMayLook(const char* call) const;
  void link(Context& context, Context* before, Context* after) noexcept;
  void unlink(Context& context) noexcept;
  void collectEvents() noexcept;
  void passRead(Message&& msg) noexcept;
  void passReadComplete() noexcept;
  void callAdded(Context& context) noexcept;
  void callRemoved(Context& context) noexcept;
  void callPendingAdded() noexcept;
  void removeNow(Context& context);
  void removeByType(const std::type_info& type);
  void removeAll() noexcept;
  void bury(Context& context) noexcept;
  void freeBuried() noexcept;
  Context& require(std::string_view name) const;
  Context& require(const ChannelHandler& handler) const;
  Context* contextOf(const std::type_info& type) const;
  Context* firstFor(Event event) const noexcept;
  Context* lastFor(Event event) const noexcept;

  Channel& channel_;
  Context* first_ = nullptr;
  Context* last_ = nullptr;
  EventMask events_ = 0;  // those that some handler wants
};

}  // namespace millrace
