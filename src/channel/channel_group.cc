// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/atomic.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_group.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/combine.h>

#include <unordered_map>
#include <utility>

namespace millrace {

/// The set itself. A channel that was removed keeps an empty place until it closes: it is listened
/// to once, however often it comes and goes.
class ChannelGroup::Core {
 public:
  explicit Core(AfterClose afterClose) : afterClose_(afterClose) {}

  enum class Added : std::uint8_t { first, again, no };
  Added add(const ChannelPtr& channel, bool& late) {
    std::lock_guard lock(mutex_);
    late = closed_;
    auto [place, isNew] = channels_.try_emplace(channel->id(), nullptr);
    if (place->second) return Added::no;
    place->second = channel;
    ++size_;
    return isNew ? Added::first : Added::again;
  }
  bool remove(std::uint64_t id) {
    ChannelPtr gone;  // let go without the lock
    std::lock_guard lock(mutex_);
    const auto place = channels_.find(id);
    if (place == channels_.end() || !place->second) return false;
    gone = std::move(place->second);
    place->second = nullptr;
    --size_;
    return true;
  }
  void forget(std::uint64_t id) {
    remove(id);
    std::lock_guard lock(mutex_);
    channels_.erase(id);
  }
  ChannelPtr find(std::uint64_t id) const {
    std::lock_guard lock(mutex_);
    const auto place = channels_.find(id);
    return place == channels_.end() ? ChannelPtr() : place->second;
  }
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }
  std::vector<ChannelPtr> all() const {
    std::lock_guard lock(mutex_);
    std::vector<ChannelPtr> found;
    found.reserve(size_);
    for (const auto& [id, channel] : channels_) {
      if (channel) found.push_back(channel);
    }
    return found;
  }
  void markClosed() {
    std::lock_guard lock(mutex_);
    closed_ = afterClose_ == AfterClose::closesChannels;
  }

 private:
  const AfterClose afterClose_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, ChannelPtr> channels_;  // guarded by mutex_, as is the rest
  std::size_t size_ = 0;
  bool closed_ = false;
};

ChannelGroup::ChannelGroup(AfterClose afterClose) : core_(std::make_shared<Core>(afterClose)) {}

// Channels that stay open must not keep each other by their listeners.
ChannelGroup::~ChannelGroup() {
  for (const ChannelPtr& channel : core_->all()) core_->remove(channel->id());
}

// --- who is in it ---

bool ChannelGroup::add(const ChannelPtr& channel) {
  bool late = false;
  const Core::Added added = core_->add(channel, late);
  if (added == Core::Added::no) return false;
  const std::uint64_t id = channel->id();
  if (added == Core::Added::first) {
    channel->closeFuture().addListener([core = std::weak_ptr<Core>(core_), id] {
      if (const std::shared_ptr<Core> there = core.lock()) there->forget(id);
    });
  }
  if (late) channel->close();
  if (channel->isOpen()) return true;
  core_->forget(id);  // its listener may come later
  return false;
}

bool ChannelGroup::remove(const Channel& channel) { return core_->remove(channel.id()); }
bool ChannelGroup::contains(const Channel& channel) const {
  return static_cast<bool>(core_->find(channel.id()));
}
ChannelPtr ChannelGroup::find(std::uint64_t id) const { return core_->find(id); }
std::size_t ChannelGroup::size() const { return core_->size(); }
std::vector<ChannelPtr> ChannelGroup::channels() const { return core_->all(); }

void ChannelGroup::forEach(const std::function<void(Channel& channel)>& fn) const {
  for (const ChannelPtr& channel : core_->all()) fn(*channel);
}

// --- broadcast ---

namespace {

ChannelGroup::Maker sharing(const ByteBuf& bytes, const ChannelGroup::Filter& wanted) {
  return [&bytes, &wanted](Channel& channel) {
    return !wanted || wanted(channel) ? Message(bytes.share()) : Message();
  };
}

}  // namespace

void ChannelGroup::write(const ByteBuf& bytes, const Filter& wanted) {
  write(sharing(bytes, wanted));
}

void ChannelGroup::write(const Maker& make) {
  for (const ChannelPtr& channel : core_->all()) {
    if (Message msg = make(*channel)) channel->write(std::move(msg));
  }
}

void ChannelGroup::flush() {
  for (const ChannelPtr& channel : core_->all()) channel->flush();
}

void ChannelGroup::writeAndFlush(const ByteBuf& bytes, const Filter& wanted) {
  writeAndFlush(sharing(bytes, wanted));
}

void ChannelGroup::writeAndFlush(const Maker& make) {
  for (const ChannelPtr& channel : core_->all()) {
    if (Message msg = make(*channel)) channel->writeAndFlush(std::move(msg));
  }
}

Future<void> ChannelGroup::send(const ByteBuf& bytes, const Filter& wanted) {
  return send(sharing(bytes, wanted));
}

Future<void> ChannelGroup::send(const Maker& make) {
  std::vector<Future<void>> sent;
  for (const ChannelPtr& channel : core_->all()) {
    if (Message msg = make(*channel)) sent.push_back(channel->send(std::move(msg)));
  }
  return whenAll(std::move(sent));
}

// --- the end ---

Future<void> ChannelGroup::close() {
  core_->markClosed();
  Future<void> closed = closeFuture();
  for (const ChannelPtr& channel : core_->all()) channel->close();
  return closed;
}

Future<void> ChannelGroup::closeGracefully() {
  core_->markClosed();
  Future<void> closed = closeFuture();
  for (const ChannelPtr& channel : core_->all()) channel->closeGracefully();
  return closed;
}

Future<void> ChannelGroup::closeFuture() const {
  std::vector<Future<void>> ends;
  for (const ChannelPtr& channel : core_->all()) ends.push_back(channel->closeFuture());
  return whenAll(std::move(ends));
}

}  // namespace millrace
