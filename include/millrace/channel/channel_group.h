// SPDX-License-Identifier: Apache-2.0
// ChannelGroup: a set of open channels, to write to all of them or to close them together.
//
//   ChannelGroup everybody;                        // a chat room
//   everybody.add(ChannelPtr(&ctx.channel()));     // in channelActive()
//   everybody.writeAndFlush(line, [&](Channel& ch) { return &ch != &ctx.channel(); });
//
// What a member does not read waits in the memory of this process. To leave out who is behind, and to
// let it miss something: a filter that asks ch.isWritable().
// A channel that closes leaves by itself. Channels may be of different loops and kinds.
//
// Threads: every call from any thread. Ownership: it shares its channels' memory while they are
// open, and closes none of them when it goes.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace millrace {

class ByteBuf;
class Channel;
class Message;
using ChannelPtr = Ref<Channel>;

/// See the top of this file.
class MILLRACE_API ChannelGroup {
 public:
  /// What add() does after close().
  enum class AfterClose : std::uint8_t {
    takesChannels,   ///< the group can be used again
    closesChannels,  ///< those that come late are closed, too
  };
  /// True for the channels that are meant; an empty one means all of them.
  using Filter = std::function<bool(Channel& channel)>;
  /// Makes the message for a channel; an empty one leaves that channel out.
  using Maker = std::function<Message(Channel& channel)>;

  explicit ChannelGroup(AfterClose afterClose = AfterClose::takesChannels);
  ChannelGroup(const ChannelGroup&) = delete;
  ChannelGroup& operator=(const ChannelGroup&) = delete;
  ~ChannelGroup();

  // --- who is in it ---
  /// False if it is in the group already, or closed.
  bool add(const ChannelPtr& channel);
  /// False if it was not in the group. The channel stays open.
  bool remove(const Channel& channel);
  bool contains(const Channel& channel) const;
  /// The one with this id, or null.
  ChannelPtr find(std::uint64_t id) const;
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  /// Those that are in it at this moment, in no order.
  std::vector<ChannelPtr> channels() const;
  /// Calls `fn` here for each of them; it may change the group.
  void forEach(const std::function<void(Channel& channel)>& fn) const;

  // --- broadcast; through each channel's whole pipeline, on its loop ---
  /// Every channel gets the same bytes, which are not copied.
  void write(const ByteBuf& bytes, const Filter& wanted = {});
  void write(const Maker& make);
  void flush();
  void writeAndFlush(const ByteBuf& bytes, const Filter& wanted = {});
  void writeAndFlush(const Maker& make);
  /// The same with a future: done when all have written, fails if one of them could not.
  Future<void> send(const ByteBuf& bytes, const Filter& wanted = {});
  Future<void> send(const Maker& make);

  // --- the end ---
  /// Closes all; done when they are closed, never fails.
  Future<void> close();
  /// The same by Channel::closeGracefully(): no answer is lost to a reset.
  Future<void> closeGracefully();
  /// Done when those that are in it at this moment are closed.
  Future<void> closeFuture() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;  // shared with the listeners on the channels' ends
};

}  // namespace millrace
