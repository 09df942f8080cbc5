// SPDX-License-Identifier: Apache-2.0
// Addresses as text: what parses comes back from its own text as the same address, and so do its
// copies.
#include <millrace/sys/socket_address.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using millrace::SocketAddress;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = SocketAddress::parse(text);
  if (parsed) {
    SocketAddress copy = *parsed;
    SocketAddress moved = std::move(copy);
    copy = moved;
    moved = SocketAddress();
    if (!(copy == *parsed) || copy.hash() != parsed->hash()) std::abort();
  }
  if (!parsed || text.find('\0') != text.npos) return 0;  // such names cannot be written as text
  const auto again = SocketAddress::parse(parsed->toString());
  if (!again || !(*again == *parsed)) {
    std::fprintf(stderr, "'%s' came back as something else\n", parsed->toString().c_str());
    std::abort();
  }
  return 0;
}
