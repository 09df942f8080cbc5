// SPDX-License-Identifier: Apache-2.0
// RingIo: what an engine that completes operations (io_uring) offers to those who own sockets.
//
// A client enters with its descriptor and begins operations; each ends in IoClient::completed(). What the
// kernel reads or writes belongs to the engine until then, so a client may leave at any time.
// Loop thread only.
#pragma once

#include <millrace/base/export.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

class BufferPool;
class ByteBuf;
class Fd;
class IoClient;

namespace internal {
struct Block;
}

/// What became of an operation.
struct RingCompletion {
  enum Kind : std::uint8_t { received, sent, accepted };

  Kind kind;
  bool last;                         ///< it is over; else more completions of it follow
  bool moreNow;                      ///< another one for this client comes right after this one
  int result;                        ///< bytes, 0: the peer's end; a descriptor; or -errno
  internal::Block* block = nullptr;  ///< received bytes; the client owns it now
  ByteBuf* rest = nullptr;           ///< of a single message that did not go whole; to be taken
};

/// How a send reads its memory.
enum class SendMode : std::uint8_t {
  copied,  ///< the kernel copies it
  inPlace,  ///< the kernel uses the memory itself where it can, which is kept until it is done with it
};

/// The operations of one ring. Descriptors that receive or send must be blocking: the kernel waits for them
/// on its own, and no thread does.
class MILLRACE_API RingIo {
 public:
  /// Gives the client's number, never 0. It must leave before it dies.
  virtual std::uint64_t enter(int fd, IoClient& client) = 0;
  /// What was begun reaches the kernel, and is cancelled if it is not done at once; the kernel has let go
  /// of the descriptor then, which may be closed. (Should it not within 200 ms, that is logged, and the file
  /// stays open until it has.) Nothing is completed after this.
  virtual void leave(std::uint64_t id) noexcept = 0;
  /// Receives again and again, into blocks of `pool` that are taken when bytes have come. False if
  /// the kernel has no memory for that: nothing was begun.
  virtual bool receive(std::uint64_t id, BufferPool& pool) = 0;
  /// Ends receive(); completions that are under way still come, the last one marked.
  virtual void stop(std::uint64_t id) noexcept = 0;
  /// Takes connections off a listening socket, again and again: each completion brings a descriptor,
  /// nonblocking, which the client owns then. It ends with the first failure. False if the ring is not
  /// this thread's: nothing was begun. The listening socket may be nonblocking (Linux 6.18); a kernel
  /// that minds fails with EAGAIN.
  virtual bool accept(std::uint64_t id) = 0;
  /// Ends accept(), and waits for that as leave() does: nothing completes any more. Gives the connections
  /// that were taken and not told of, in their order.
  virtual std::vector<Fd> stopAccepting(std::uint64_t id) = 0;
  /// Sends all of it, unless it fails or is stopped. One at a time per client.
  virtual void send(std::uint64_t id, ByteBuf&& bytes, SendMode mode = SendMode::copied) = 0;
  /// The same for several, which stay with the caller; their memory is kept.
  virtual void send(std::uint64_t id, std::span<const ByteBuf* const> parts,
                    SendMode mode = SendMode::copied) = 0;
  /// Ends a send: what has gone by then is its result, 0 included.
  virtual void stopSending(std::uint64_t id) noexcept = 0;
  /// Looks whether a send is over, ahead of its turn: then it does not complete any more, and this
  /// is what it would have brought. `rest` is where completion.rest points to, if there is one.
  virtual bool finishSend(std::uint64_t id, RingCompletion& completion, ByteBuf& rest) = 0;
  /// Bytes of the send under way, less what is known to have gone.
  virtual std::size_t unsentBytes(std::uint64_t id) const noexcept = 0;
  /// Blocks that wait for bytes, of all clients together.
  virtual std::size_t waitingBlocks() const noexcept = 0;
  /// Bytes that one block of receive() has room for.
  virtual std::size_t receiveSize() const noexcept = 0;

 protected:
  ~RingIo() = default;
};

}  // namespace millrace
