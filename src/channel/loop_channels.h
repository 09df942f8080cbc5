// SPDX-License-Identifier: Apache-2.0
// LoopChannels: what the channels of one loop share: their table, buffers, and the list of those
// that have something to send. Loop thread only.
#pragma once

#include "buffer/pool_core.h"

#include <millrace/buffer/buffer_pool.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/outbound_buffer.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/loop/loop_attachment.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace millrace {

class LoopChannels final : public LoopAttachment {
 public:
  /// Parts of one gathering write; IOV_MAX of Linux.
  static constexpr std::size_t kMaxParts = 1024;
  /// More outbound buffers than this, or larger ones, are not kept for later.
  static constexpr std::size_t kSpares = 64;
  static constexpr std::size_t kSpareEntries = 64;

  /// Those of `loop`, made when first asked for.
  static LoopChannels& of(EventLoop& loop);
  ~LoopChannels() override;

  // --- LoopAttachment ---
  void afterCallbacks() noexcept override;
  void closeAll(CloseMode mode) override;
  std::int64_t nextDue() const noexcept override { return firstLate_; }
  void runDue(std::int64_t now) noexcept override;
  void threadChanged() noexcept override { pool_.bindToThisThread(); }
  void addTo(ShutdownReport& report) const override;
  void describe(std::vector<std::string>& lines) const override;

  // --- the table ---
  void add(Channel& channel);
  void remove(Channel& channel) noexcept;
  const std::vector<Channel*>& all() const noexcept { return channels_; }

  // --- for channels ---
  /// A message that waits for the end of its event; see channel_fast.h.
  class Solo {
   public:
    Solo() noexcept {}  // NOLINT: the bytes live only while there is an owner
    ~Solo() {}          // NOLINT
    Solo(const Solo&) = delete;
    Solo& operator=(const Solo&) = delete;
    void takeInto(Message& msg) noexcept { msg.releaseByteBuf(&bytes_); }
    ByteBuf& bytes() noexcept { return bytes_; }
    void drop() noexcept { bytes_.~ByteBuf(); }
    /// The same, for what comes from this pool.
    void drop(internal::PoolCore& mine) noexcept {
      // The bytes themselves are not looked at again.
      if (internal::Block* block = bytes_.block()) mine.dropHere(block);
    }

   private:
    union {
      ByteBuf bytes_;
    };
  };
  Channel* soloOwner = nullptr;  // whose message it is
  Solo solo;
  BufferPool& pool() noexcept { return pool_; }
  void makeDirty(Channel& channel) noexcept {
    channel.nextDirty_ = nullptr;
    if (dirtyLast_ == nullptr) {
      dirtyFirst_ = &channel;
      setHasWork(true);
    } else {
      dirtyLast_->nextDirty_ = &channel;
    }
    dirtyLast_ = &channel;
  }
  /// An empty one, warm if possible.
  OutboundBuffer* takeOutbound() {
    OutboundBuffer* out = spare_;
    if (__builtin_expect(out == nullptr, 0)) return new OutboundBuffer;
    spare_ = out->nextSpare;
    --spares_;
    return out;
  }
  void giveOutbound(OutboundBuffer* out) noexcept {
    if (__builtin_expect(spares_ == kSpares || out->capacity() > kSpareEntries, 0)) {
      delete out;
      return;
    }
    out->nextSpare = spare_;
    spare_ = out;
    ++spares_;
  }
  /// Room for the parts of a gathering write; whoever asks uses it before anybody else does.
  iovec* parts();
  /// Runs `task` after `delay` even if the loop shuts down, and then not on its timers. The handle is
  /// empty in that case.
  ScheduledFuture after(Duration delay, Task task);
  /// Closes it gracefully, however long its peer takes.
  static Future<void> linger(Channel& channel);
  /// Bytes that it has not yet written.
  static std::size_t unwritten(const Channel& channel) noexcept;
  /// Closes it by force. A peer that does not get all that was written sees a reset instead of an end.
  static void cut(Channel& channel, const Error& why);

  enum Figure : std::size_t {
    registered,
    closed,
    bytesRead,
    bytesWritten,
    dropped,
    pausedReads,
    copies,
    failedWrites,
    acceptPauses,
    truncated
  };
  void count(Figure figure, std::uint64_t n = 1) noexcept { figures()[figure].add(n); }

 private:
  explicit LoopChannels(EventLoop& loop) : loop_(loop) {}

  EventLoop& loop_;
  BufferPool pool_;
  std::vector<Channel*> channels_;
  Channel* dirtyFirst_ = nullptr;
  Channel* dirtyLast_ = nullptr;
  OutboundBuffer* spare_ = nullptr;  // a stack, owned
  std::size_t spares_ = 0;
  std::unique_ptr<iovec[]> parts_;
  struct Late {
    std::int64_t due;
    Task task;
  };
  std::vector<Late> late_;  // what waits while the loop shuts down
  std::int64_t firstLate_ = INT64_MAX;
  std::size_t cut_ = 0;
  std::size_t bytesCut_ = 0;
};

}  // namespace millrace
