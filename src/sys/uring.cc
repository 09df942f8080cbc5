// SPDX-License-Identifier: Apache-2.0
#include "sys/uring.h"

#include "sys/timeout.h"

#include <millrace/sys/calls.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <linux/time_types.h>
#include <sys/mman.h>
#include <utility>

namespace millrace {

namespace {

constexpr unsigned kAlways =
    IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG;
/// From the newest kernels down: 6.1, 6.0.
constexpr std::array kFlags{
    kAlways | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    kAlways | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
};
constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;

unsigned* wordAt(void* memory, std::size_t offset) noexcept {
  return reinterpret_cast<unsigned*>(static_cast<std::byte*>(memory) + offset);
}

/// True if the kernel has the operation.
bool has(const io_uring_probe& probe, unsigned operation) noexcept {
  return operation < probe.ops_len && (probe.ops[operation].flags & IO_URING_OP_SUPPORTED) != 0;
}

constexpr const char* kTooOld = "the kernel's io_uring is older than 6.0: use a newer kernel";

/// What to do about a ring that cannot be opened for now.
const char* remedyFor(int error) noexcept {
  switch (error) {
    case ENOMEM:
      return "raise the limit of locked memory, ulimit -l, or ask for a smaller ring, "
             "io::RingSizes";
    case EMFILE:
      return "raise the limit of open files, ulimit -n";
    default:
      return "";
  }
}

std::string reasonOf(int error) {
  switch (error) {
    case ENOSYS:
      return "the kernel has no io_uring, or a seccomp profile hides it: use Linux 6.0 or later, "
             "and allow the calls io_uring_*";
    case EPERM:
    case EACCES:
      return "io_uring is forbidden (a seccomp profile of the container, or the sysctl "
             "kernel.io_uring_disabled): allow the calls io_uring_*, or set that to 0";
    case EINVAL:
      return kTooOld;
    default:
      return Error::fromErrno(error, "io_uring_setup", remedyFor(error)).message();
  }
}

}  // namespace

// --- opening ---

Result<Uring> Uring::open(Sizes sizes) {
  int error = 0;
  for (const unsigned flags : kFlags) {
    io_uring_params parameters{};
    parameters.flags = flags;
    parameters.cq_entries = sizes.completions;
    Uring ring;
    ring.fd_ = Fd(calls().io_uring_setup(sizes.entries, &parameters));
    if (!ring.fd_.valid()) {
      error = errno;
      if (error == EINVAL) continue;
      break;
    }
    if ((parameters.features & kNeeded) != kNeeded)
      return Error::fromErrno(EINVAL, "io_uring_setup");
    ring.flags_ = flags;
    if (Result<void> mapped = ring.map(parameters); !mapped) return mapped.error();
    return ring;
  }
  return Error::fromErrno(error, "io_uring_setup", remedyFor(error));
}

Result<void> Uring::map(const io_uring_params& parameters) {
  const io_sqring_offsets& sq = parameters.sq_off;
  const io_cqring_offsets& cq = parameters.cq_off;
  const std::size_t submissions = sq.array + parameters.sq_entries * sizeof(unsigned);
  const std::size_t completions = cq.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
  const std::size_t size = submissions > completions ? submissions : completions;
  constexpr int kRights = PROT_READ | PROT_WRITE;
  constexpr int kKind = MAP_SHARED | MAP_POPULATE;
  void* memory = ::mmap(nullptr, size, kRights, kKind, fd_.get(), IORING_OFF_SQ_RING);
  if (memory == MAP_FAILED) return Error::fromErrno(errno, "mmap of a ring");
  at_.memory = memory;
  at_.size = size;
  const std::size_t entriesSize = parameters.sq_entries * sizeof(io_uring_sqe);
  void* entries = ::mmap(nullptr, entriesSize, kRights, kKind, fd_.get(), IORING_OFF_SQES);
  if (entries == MAP_FAILED) return Error::fromErrno(errno, "mmap of a ring's entries");
  at_.entries = static_cast<io_uring_sqe*>(entries);
  at_.entriesSize = entriesSize;

  at_.sqHead = wordAt(memory, sq.head);
  at_.sqKernelTail = wordAt(memory, sq.tail);
  at_.sqFlags = wordAt(memory, sq.flags);
  at_.sqMask = *wordAt(memory, sq.ring_mask);
  at_.sqEntries = *wordAt(memory, sq.ring_entries);
  at_.cqHead = wordAt(memory, cq.head);
  at_.cqTail = wordAt(memory, cq.tail);
  at_.cqMask = *wordAt(memory, cq.ring_mask);
  at_.completions = reinterpret_cast<const io_uring_cqe*>(wordAt(memory, cq.cqes));
  // The kernel takes entries by way of an array of their numbers; ours come in order.
  unsigned* numbers = wordAt(memory, sq.array);
  for (unsigned i = 0; i < at_.sqEntries; ++i) numbers[i] = i;
  return {};
}

Uring& Uring::operator=(Uring&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::move(other.fd_);
  flags_ = other.flags_;
  at_ = std::exchange(other.at_, {});
  return *this;
}

void Uring::close() noexcept {
  if (void* memory = std::exchange(at_.memory, nullptr)) ::munmap(memory, at_.size);
  if (void* entries = std::exchange(at_.entries, nullptr)) ::munmap(entries, at_.entriesSize);
  fd_.reset();
}

// --- calls ---

int Uring::call(unsigned waitFor, unsigned flags, const void* argument, std::size_t size) noexcept {
  std::atomic_ref<unsigned>(*at_.sqKernelTail).store(at_.sqTail, std::memory_order_release);
  const int result = calls().io_uring_enter(fd_.get(), queued(), waitFor, flags, argument, size);
  const int error = result < 0 ? errno : 0;
  // However the call ended, the kernel has taken what its head says.
  at_.sqSubmitted = std::atomic_ref<unsigned>(*at_.sqHead).load(std::memory_order_acquire);
  return -error;
}

int Uring::enter(std::int64_t timeoutNanos) noexcept {
  if (timeoutNanos == 0) return call(0, IORING_ENTER_GETEVENTS, nullptr, 0);
  if (timeoutNanos < 0) return call(1, IORING_ENTER_GETEVENTS, nullptr, 0);
  const timespec limit = toTimespec(timeoutNanos);
  const __kernel_timespec kernelLimit{limit.tv_sec, limit.tv_nsec};
  io_uring_getevents_arg argument{};
  argument.ts = reinterpret_cast<std::uintptr_t>(&kernelLimit);
  const int result =
      call(1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
  return result == -ETIME ? 0 : result;
}

int Uring::submit() noexcept {
  while (queued() != 0) {
    const unsigned before = queued();
    const int result = call(0, 0, nullptr, 0);
    if (result == -EINTR) continue;
    if (result != 0) return result;
    if (queued() == before) return -EAGAIN;
  }
  return 0;
}

Result<void> Uring::registerBuffers(void* ring, unsigned entries, std::uint16_t group) noexcept {
  io_uring_buf_reg request{};
  request.ring_addr = reinterpret_cast<std::uintptr_t>(ring);
  request.ring_entries = entries;
  request.bgid = group;
  if (calls().io_uring_register(fd_.get(), IORING_REGISTER_PBUF_RING, &request, 1) == 0) return {};
  return Error::fromErrno(errno, "io_uring_register(buffers)");
}

void Uring::unregisterBuffers(std::uint16_t group) noexcept {
  io_uring_buf_reg request{};
  request.bgid = group;
  calls().io_uring_register(fd_.get(), IORING_UNREGISTER_PBUF_RING, &request, 1);
}

// --- probing ---

UringSupport probeUring(Uring::Sizes sizes) {
  UringSupport found;
  Result<Uring> ring = Uring::open(sizes);
  if (!ring) {
    found.why = reasonOf(ring.error().errnoValue());
    return found;
  }
  constexpr unsigned kOperations = 64;
  alignas(io_uring_probe)
      std::array<std::byte, sizeof(io_uring_probe) + kOperations * sizeof(io_uring_probe_op)>
          memory{};
  auto* probe = reinterpret_cast<io_uring_probe*>(memory.data());
  if (calls().io_uring_register(ring->fd(), IORING_REGISTER_PROBE, probe, kOperations) != 0) {
    found.why = reasonOf(errno);
    return found;
  }
  // Receiving again and again into buffers of a ring has no mark of its own; it came with this one.
  if (!has(*probe, IORING_OP_SEND_ZC)) {
    found.why = kTooOld;
    return found;
  }
  ring->next()->opcode = IORING_OP_NOP;
  if (const int entered = ring->enter(0); entered != 0) {
    found.why = reasonOf(-entered);
    return found;
  }
  found.usable = true;
  found.deferred = ring->isDeferred();
  return found;
}

}  // namespace millrace
