// SPDX-License-Identifier: Apache-2.0
//
// Linked with ../loop/alloc_count.cc into bench_echo_<peer>_alloc: says at the end how often the
// process allocated.
#include <cinttypes>
#include <cstdint>
#include <cstdio>

extern "C" uint64_t benchAllocations();

namespace {

struct Report {
  ~Report() { std::fprintf(stderr, "allocations %" PRIu64 "\n", benchAllocations()); }
} report;

}  // namespace
