// SPDX-License-Identifier: Apache-2.0
// Counts what `new` does in a test program that uses it. Under sanitizers nothing is counted: they
// need their own `new`, and see leaks themselves.
#pragma once

#include <cstdint>

namespace millrace::test {

/// False if this build counts nothing.
bool countsHeap() noexcept;
/// Calls of `new` by this thread so far.
std::uint64_t heapCallsOfThread() noexcept;
/// Bytes that all threads have got by `new` and not given back.
std::int64_t heapBytes() noexcept;

}  // namespace millrace::test
