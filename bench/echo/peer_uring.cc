// SPDX-License-Identifier: Apache-2.0
//
// io_uring without a framework: one call per turn. Accepting and receiving go on by themselves; the
// kernel picks a buffer when bytes have come, they are sent from it, and then it is the kernel's again.
// One send per connection at a time, of all that waits. Who never reads can take every buffer.
#include "peer.h"

#include <liburing.h>
#include <limits>
#include <utility>

namespace {

constexpr unsigned kEntries = 4096;
constexpr size_t kBufferSize = 16 * 1024;
constexpr unsigned kFirstBuffers = 128;  // few stay in the cache; doubled when they do not suffice
constexpr unsigned kMostBuffers = 1024;
constexpr unsigned kMostParts = 64;
constexpr unsigned kNone = ~0u;

enum class Kind : uint8_t { kAccept, kReceive, kSend };

struct Buffer {
  char* begin = nullptr;  // of what is not sent yet
  size_t size = 0;
  unsigned next = kNone;  // buffer of the same connection
};

struct Connection {
  unsigned first = kNone, last = kNone;  // buffers to be sent
  bool sending = false;
  bool ended = false;  // nothing will come any more
};

volatile std::sig_atomic_t stopped = 0;
io_uring ring;
alignas(4096) char memory[kMostBuffers][kBufferSize];
// The kernel's ring of buffers; not by its C type, which may have another layout in C++.
alignas(4096) io_uring_buf offered[kMostBuffers];
uint16_t offeredTail = 0;
unsigned inUse = 0;    // of the buffers
unsigned waiting = 0;  // of these, for bytes
Buffer buffers[kMostBuffers];
iovec parts[kMostBuffers];  // of sends since the last submit; a buffer is in one of them at most
msghdr messages[kEntries];
size_t partsUsed = 0, messagesUsed = 0;
std::vector<Connection> connections;  // by descriptor
std::vector<int> starved;             // descriptors that found no buffer

Connection& at(int fd) { return connections[static_cast<size_t>(fd)]; }

void submit(unsigned waitFor) {
  io_uring_submit_and_wait(&ring, waitFor);
  partsUsed = messagesUsed = 0;
}

io_uring_sqe* entry(Kind kind, int fd) {
  if (io_uring_sq_space_left(&ring) == 0) submit(0);
  io_uring_sqe* operation = io_uring_get_sqe(&ring);
  operation->user_data = static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(fd);
  return operation;
}

void offer(unsigned number) {
  io_uring_buf& place = offered[offeredTail++ % kMostBuffers];
  place.addr = reinterpret_cast<uintptr_t>(memory[number]);
  place.len = kBufferSize;
  place.bid = static_cast<uint16_t>(number);
  ++waiting;
}

/// Shows the kernel what was offered: the tail lies in a field that the first place does not use.
void publish() {
  std::atomic_ref<uint16_t>(offered[0].resv).store(offeredTail, std::memory_order_release);
}

void openRing() {
  io_uring_params about{};
  about.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL;
  errno = -io_uring_queue_init_params(kEntries, &ring, &about);
  bench::need(errno == 0, "io_uring_queue_init_params");
  io_uring_register_ring_fd(&ring);
  io_uring_buf_reg group{};
  group.ring_addr = reinterpret_cast<uintptr_t>(offered);
  group.ring_entries = kMostBuffers;
  errno = -io_uring_register_buf_ring(&ring, &group, 0);
  bench::need(errno == 0, "io_uring_register_buf_ring");
  while (inUse < kFirstBuffers) offer(inUse++);
  publish();
}

void acceptOn(int fd) {
  io_uring_prep_multishot_accept(entry(Kind::kAccept, fd), fd, nullptr, nullptr, SOCK_CLOEXEC);
}

void receiveOn(int fd) {
  io_uring_sqe* operation = entry(Kind::kReceive, fd);
  io_uring_prep_recv_multishot(operation, fd, nullptr, 0, 0);
  operation->flags |= IOSQE_BUFFER_SELECT;
}

void sendOn(int fd) {
  io_uring_sqe* operation = entry(Kind::kSend, fd);
  msghdr& message = messages[messagesUsed++] = {};
  message.msg_iov = parts + partsUsed;
  for (auto i = at(fd).first; i != kNone && message.msg_iovlen < kMostParts; i = buffers[i].next) {
    message.msg_iov[message.msg_iovlen++] = {buffers[i].begin, buffers[i].size};
  }
  partsUsed += message.msg_iovlen;
  const int flags = MSG_NOSIGNAL | MSG_WAITALL;
  const iovec& part = *message.msg_iov;
  message.msg_iovlen > 1 ? io_uring_prep_sendmsg(operation, fd, &message, flags)
                         : io_uring_prep_send(operation, fd, part.iov_base, part.iov_len, flags);
  at(fd).sending = true;
}

void accepted(int listener, int fd, bool more) {
  if (!more) acceptOn(listener);
  if (fd < 0) return;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connections.size() <= static_cast<size_t>(fd))
    connections.resize(static_cast<size_t>(fd) * 2);
  at(fd) = {};
  receiveOn(fd);
}

void received(int fd, int result, unsigned number, bool more) {
  Connection& connection = at(fd);
  if (result > 0) {
    --waiting;
    buffers[number] = {memory[number], static_cast<size_t>(result), kNone};
    (connection.first == kNone ? connection.first : buffers[connection.last].next) = number;
    connection.last = number;
    if (!connection.sending) sendOn(fd);
  }
  if (more) return;
  if (result > 0) return receiveOn(fd);
  if (result == -ENOBUFS) return starved.push_back(fd);
  connection.ended = true;
  if (!connection.sending) close(fd);
}

void sent(int fd, int result) {
  Connection& connection = at(fd);
  connection.sending = false;
  if (result < 0) shutdown(fd, SHUT_RDWR);  // ends the receiving, too
  size_t gone = result < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(result);
  while (connection.first != kNone) {
    Buffer& buffer = buffers[connection.first];
    const size_t taken = std::min(gone, buffer.size);
    gone -= taken;
    buffer.begin += taken;
    buffer.size -= taken;
    if (buffer.size > 0) return sendOn(fd);
    offer(std::exchange(connection.first, buffer.next));
  }
  if (connection.ended) close(fd);
}

void handle(const io_uring_cqe& completion) {
  const auto kind = static_cast<Kind>(completion.user_data >> 32);
  const auto fd = static_cast<int>(completion.user_data & 0xffffffff);
  const auto number = completion.flags >> IORING_CQE_BUFFER_SHIFT;
  const bool more = (completion.flags & IORING_CQE_F_MORE) != 0;
  if (kind == Kind::kAccept) accepted(fd, completion.res, more);
  if (kind == Kind::kReceive) received(fd, completion.res, number, more);
  if (kind == Kind::kSend) sent(fd, completion.res);
}

void feedStarved() {
  for (const unsigned wanted = std::min(inUse * 2, kMostBuffers); inUse < wanted;) offer(inUse++);
  publish();
  if (waiting == 0) return;
  for (const int fd : starved) receiveOn(fd);
  starved.clear();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { stopped = 1; });  // ends the wait, too
  const uint16_t port = bench::begin(argc, argv);
  openRing();
  acceptOn(bench::listenOn(port, 0));
  while (!stopped) {
    submit(1);
    unsigned head = 0, count = 0;
    io_uring_cqe* completion;
    io_uring_for_each_cqe(&ring, head, completion) {
      handle(*completion);
      ++count;
    }
    io_uring_cq_advance(&ring, count);
    publish();
    if (!starved.empty()) feedStarved();
  }
}
