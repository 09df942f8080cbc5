// SPDX-License-Identifier: Apache-2.0
// UringSelector: readiness and operations by one ring of the kernel.
//
// Watched descriptors are polls: with edges one that goes on by itself, with levels one that is begun
// anew before each wait. Operations (RingIo) have slots of their own. The kernel is given kind,
// sequence and place, never a pointer: what belongs to a registration that has ended is recognised
// and dropped.
//
//   63..60 kind | 59..32 sequence | 31..0 place
//
// Everything that was begun reaches the kernel with the next select(), in one call. Loop thread only.
#pragma once

#include "loop/readiness/selector.h"
#include "loop/slot_table.h"
#include "loop/uring/receive_buffers.h"
#include "sys/uring.h"

#include <millrace/buffer/byte_buf.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/fd.h>

#include <cstdint>
#include <memory>
#include <sys/socket.h>
#include <sys/uio.h>
#include <vector>

namespace millrace {

class UringSelector final : public Selector, private RingIo {
 public:
  UringSelector(unsigned entries, unsigned completions) noexcept : sizes_{entries, completions} {}
  ~UringSelector() override;

  // --- Selector ---
  Result<void> attach() override;
  void detach() noexcept override;
  Result<void> add(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) override;
  Result<void> modify(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) override;
  Result<void> remove(int fd, std::uint64_t data) noexcept override;
  void removeClosed(int fd, std::uint64_t data) noexcept override;
  void letGo() noexcept override;
  int select(std::int64_t timeoutNanos) noexcept override;
  const ReadyEvent* events() const noexcept override { return ready_.data(); }
  bool isEdge() const noexcept override { return true; }
  RingIo* ring() noexcept override { return this; }
  void countClientsIn(std::atomic<std::size_t>& counter) override { clients_ = &counter; }
  bool hasToEnd() const noexcept override { return endingPolls_ != 0 || !refused_.empty(); }
  int completions() const noexcept override { return static_cast<int>(done_.size() - delivered_); }
  void deliver(IoLoop& loop) override;
  void tellClientsOfTheEnd() override;

 private:
  enum class Kind : std::uint8_t { none, poll, receive, accept, send, sendInPlace };

  static constexpr std::uint32_t kSequenceMask = (1u << 28) - 1;
  /// For what has to end.
  static constexpr int kLastLooks = 1000;
  static constexpr std::int64_t kLastLookNanos = 1'000'000;
  /// As long as a processor may be away from a virtual machine, and longer.
  static constexpr std::int64_t kPatienceNanos = 200'000'000;
  static constexpr std::uint64_t clientId(std::uint32_t sequence, std::uint32_t place) noexcept {
    return (std::uint64_t{sequence & kSequenceMask} << 32) | place;
  }

  struct Poll {
    int fd = -1;  // -1: free
    std::uint32_t events = 0;
    std::uint64_t data = 0;
    std::uint64_t file = 0;  // what tells its file from others
    std::uint32_t sequence = 0;
    Trigger trigger = Trigger::level;
    bool armed = false;   // the kernel has it, or will with the next call
    bool listed = false;  // in toArm_ or toArmLater_
  };

  /// What the kernel reads from.
  struct Send {
    ByteBuf single;
    msghdr message{};
    std::vector<iovec> parts;
    std::vector<internal::Block*> kept;
    std::size_t sent = 0;  // of what the parts, or the single one, say
    std::size_t total = 0;
    std::size_t left = 0;
    std::uint64_t doneAt = 0;   // its end is done_[doneAt - doneBefore_ - 1]; 0: it goes on
    std::uint32_t client = 0;   // its place
    std::uint32_t place = 0;    // in inPlace_; 0: none
    std::uint16_t notices = 0;  // that the kernel owes: it may still read the memory
    bool stopped = false;
    bool isTold = false;   // the client knows what became of it
    bool inPlace = false;  // without a copy
    Send* next = nullptr;  // among the spare ones
    void release() noexcept;
  };

  struct Slot {
    IoClient* client = nullptr;  // null: free, or left
    Send* send = nullptr;
    int fd = -1;
    std::uint32_t sequence = 0;
    std::uint16_t inFlight = 0;  // operations that have not ended
    Kind repeats = Kind::none;   // receive or accept
    bool wanted = false;         // it is to go on
    bool repeating = false;      // and the kernel does it
    bool hasEnded = false;       // no more: its last completion is in done_
  };

  struct Done {
    std::uint64_t what;
    int result;
    std::uint32_t flags;
  };

  // --- RingIo: ring_operations.cc ---
  std::uint64_t enter(int fd, IoClient& client) override;
  void leave(std::uint64_t id) noexcept override;
  bool receive(std::uint64_t id, BufferPool& pool) override;
  void stop(std::uint64_t id) noexcept override;
  bool accept(std::uint64_t id) override;
  std::vector<Fd> stopAccepting(std::uint64_t id) override;
  void send(std::uint64_t id, ByteBuf&& bytes, SendMode mode) override;
  void send(std::uint64_t id, std::span<const ByteBuf* const> parts, SendMode mode) override;
  void stopSending(std::uint64_t id) noexcept override;
  bool finishSend(std::uint64_t id, RingCompletion& completion, ByteBuf& rest) override;
  std::size_t unsentBytes(std::uint64_t id) const noexcept override;
  std::size_t waitingBlocks() const noexcept override { return buffers_.waiting(); }
  std::size_t receiveSize() const noexcept override { return ReceiveBuffers::kSize; }

  Slot* find(std::uint64_t id) noexcept;
  io_uring_sqe& begin(Slot& slot, Kind kind, std::uint8_t operation);
  void beginRepeating(Slot& slot);
  std::uint64_t nameOfRepeated(const Slot& slot) const noexcept;
  void cancel(std::uint64_t name, std::uint64_t refused) noexcept;
  void cancelAgain() noexcept;
  void endNow(const Slot& slot) noexcept;
  static bool isOver(const Slot& slot) noexcept;
  void noteEnd(const Done& done) noexcept;
  std::uint64_t idOf(const Slot& slot) const noexcept;
  static Kind kindOf(const Done& done) noexcept { return static_cast<Kind>(done.what >> 60); }
  Slot& slotOf(const Done& done) noexcept;
  void over(Slot& slot) noexcept;
  void deliverOne(const Done& done, bool moreNow, IoLoop& loop);
  bool received(Slot& slot, const Done& done, RingCompletion& completion);
  bool accepted(Slot& slot, const Done& done, RingCompletion& completion);
  static void dropAccepted(const Done& done) noexcept;
  bool goesOn(Slot& slot, const Done& done);
  static void tell(Slot& slot, const RingCompletion& completion, IoLoop& loop);
  // Sends: ring_sends.cc.
  Send& newSend(std::uint64_t id, SendMode mode);
  std::uint64_t nameOf(const Send& send) const noexcept;
  void sendRest(Send& send);
  Send& sendOf(const Done& done) noexcept {
    const auto place = static_cast<std::uint32_t>(done.what);
    return kindOf(done) == Kind::sendInPlace ? *inPlace_[place] : *slots_[place].send;
  }
  bool sent(Send& send, const Done& done, RingCompletion& completion, ByteBuf& rest);
  bool mayGoOn(Send& send, int result) noexcept;
  static void describe(Send& send, int result, RingCompletion& completion, ByteBuf& rest);
  void retire(Send& send) noexcept;
  void endUntold(const Done& done) noexcept;
  void dropSends() noexcept;
  static void keepForGood(Send* send) noexcept;
  void freeIfUnused(Slot& slot) noexcept;

  /// Only the thread that opened the ring may use it; at a loop's end others may come by.
  bool isUsable() const noexcept { return ring_.isOpen() && owner_ == thisOwner(); }
  struct Owner {
    std::uint64_t thread = 0;  // never used again, as a thread's id is
    std::uint64_t fork = 0;
    bool operator==(const Owner&) const = default;
  };
  static Owner thisOwner() noexcept;
  io_uring_sqe& entry();
  void flush() noexcept;
  void flushAndCollect();
  void collect(std::vector<ReadyEvent>& found);
  void arm(std::uint32_t place);
  void disarm(Poll& poll) noexcept;
  void polled(const io_uring_cqe& completion, std::vector<ReadyEvent>& found);
  Poll* pollOf(int fd) noexcept;
  void forget(Poll& poll) noexcept;
  static std::uint64_t nameOf(Kind kind, std::uint32_t sequence, std::uint32_t place) noexcept;

  const Uring::Sizes sizes_;
  Uring ring_;
  Owner owner_;
  io_uring_sqe scratch_{};  // for who must not use the ring
  ReceiveBuffers buffers_;
  SlotTable<Poll> polls_;
  std::vector<std::int32_t> pollByFd_;     // place, or -1
  std::vector<std::uint32_t> toArm_;       // places
  std::vector<std::uint32_t> toArmLater_;  // whose events wait in later_
  // Polls that were cancelled: they keep their files open until they have ended.
  std::size_t endingPolls_ = 0;
  std::vector<ReadyEvent> ready_;
  std::vector<ReadyEvent> later_;  // found while ready_ was being handed out
  SlotTable<Slot> slots_{1};       // the first is nobody's
  std::vector<Done> done_;
  std::size_t delivered_ = 0;           // of done_
  std::uint64_t doneBefore_ = 0;        // handed out and taken off the front of done_
  std::vector<std::uint64_t> refused_;  // clients, one of whose cancels found nothing
  Send* spareSends_ = nullptr;
  SlotTable<Send*> inPlace_{1};  // sends without a copy; the first is nobody's
  bool refusesInPlace_ = false;  // the kernel does not know how
  std::size_t inFlight_ = 0;
  std::atomic<std::size_t>* clients_ = nullptr;
};

}  // namespace millrace
