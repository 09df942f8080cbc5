// SPDX-License-Identifier: Apache-2.0
#include "support/heap_count.h"

#include <millrace/sys/socket_address.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unordered_set>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using testing::HasSubstr;

std::string reprint(std::string_view text) {
  const auto parsed = SocketAddress::parse(text);
  return parsed.ok() ? parsed->toString() : parsed.error().message();
}

TEST(SocketAddress, MadeFromNothingIsNone) {
  const SocketAddress none;

  EXPECT_FALSE(none);
  EXPECT_EQ(none.family(), AddressFamily::none);
  EXPECT_EQ(none.toString(), "none");
  EXPECT_EQ(none.rawSize(), 0u);
  EXPECT_EQ(none.domain(), AF_UNSPEC);
  EXPECT_EQ(none.port(), 0);
  EXPECT_FALSE(none.isInet() || none.isUnix() || none.isAny() || none.isLoopback());
}

TEST(SocketAddress, OfIPv4HasTheKernelsForm) {
  const SocketAddress address = SocketAddress::inet4({10, 0, 0, 1}, 80);

  sockaddr_in raw{};
  ASSERT_EQ(address.rawSize(), sizeof raw);
  std::memcpy(&raw, address.raw(), sizeof raw);
  EXPECT_EQ(raw.sin_family, AF_INET);
  EXPECT_EQ(ntohs(raw.sin_port), 80);
  EXPECT_EQ(ntohl(raw.sin_addr.s_addr), 0x0a000001u);
  EXPECT_EQ(address.domain(), AF_INET);
  EXPECT_EQ(address.host(), "10.0.0.1");
  EXPECT_EQ(address.toString(), "10.0.0.1:80");
}

TEST(SocketAddress, OfIPv6HasTheKernelsForm) {
  const SocketAddress address =
      SocketAddress::inet6({0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}, 443, 2);

  sockaddr_in6 raw{};
  ASSERT_EQ(address.rawSize(), sizeof raw);
  std::memcpy(&raw, address.raw(), sizeof raw);
  EXPECT_EQ(raw.sin6_family, AF_INET6);
  EXPECT_EQ(raw.sin6_scope_id, 2u);
  EXPECT_EQ(address.port(), 443);
  EXPECT_EQ(address.scope(), 2u);
  EXPECT_EQ(address.toString(), "[fe80::7%2]:443");
}

TEST(SocketAddress, OfAPathHasTheKernelsForm) {
  const SocketAddress address = SocketAddress::unixPath("/run/a.sock").value();

  sockaddr_un raw{};
  std::memcpy(&raw, address.raw(), address.rawSize());
  EXPECT_EQ(raw.sun_family, AF_UNIX);
  EXPECT_STREQ(raw.sun_path, "/run/a.sock");
  EXPECT_EQ(address.rawSize(), offsetof(sockaddr_un, sun_path) + 12);
  EXPECT_EQ(address.name(), "/run/a.sock");
  EXPECT_EQ(address.toString(), "unix:/run/a.sock");
  EXPECT_EQ(address.host(), "");
}

TEST(SocketAddress, OfAnAbstractNameHasTheKernelsForm) {
  const SocketAddress address = SocketAddress::unixAbstract("bus").value();

  sockaddr_un raw{};
  std::memcpy(&raw, address.raw(), address.rawSize());
  EXPECT_EQ(raw.sun_path[0], '\0');
  EXPECT_EQ(std::string(raw.sun_path + 1), "bus");
  EXPECT_EQ(address.rawSize(), offsetof(sockaddr_un, sun_path) + 4);
  EXPECT_EQ(address.name(), "bus");
  EXPECT_EQ(address.toString(), "unix:@bus");
}

TEST(SocketAddress, UnixNamesHaveALimit) {
  const std::string longest(107, 'x');
  const std::string tooLong(108, 'x');

  EXPECT_EQ(SocketAddress::unixPath(longest)->name(), longest);
  EXPECT_EQ(SocketAddress::unixAbstract(longest)->name(), longest);
  EXPECT_EQ(SocketAddress::unixPath(tooLong).error().errnoValue(), ENAMETOOLONG);
  EXPECT_EQ(SocketAddress::unixAbstract(tooLong).error().errnoValue(), ENAMETOOLONG);
  EXPECT_EQ(SocketAddress::unixPath("").error().errnoValue(), EINVAL);
  EXPECT_EQ(SocketAddress::unixPath(std::string_view("a\0b", 3)).error().errnoValue(), EINVAL);
}

TEST(SocketAddress, KnowsLoopbackAndAny) {
  EXPECT_TRUE(SocketAddress::loopback4(1).isLoopback());
  EXPECT_TRUE(SocketAddress::inet4({127, 9, 9, 9}, 1).isLoopback());
  EXPECT_TRUE(SocketAddress::loopback6(1).isLoopback());
  EXPECT_TRUE(SocketAddress::unixAbstract("x")->isLoopback());
  EXPECT_FALSE(SocketAddress::inet4({10, 0, 0, 1}, 1).isLoopback());
  EXPECT_FALSE(SocketAddress::any6(1).isLoopback());
  EXPECT_TRUE(SocketAddress::any4(80).isAny());
  EXPECT_TRUE(SocketAddress::any6(80).isAny());
  EXPECT_FALSE(SocketAddress::loopback4(0).isAny());
  EXPECT_FALSE(SocketAddress::loopback6(0).isAny());
  EXPECT_FALSE(SocketAddress::unixAbstract("")->isAny());
}

TEST(SocketAddress, WithPortChangesThePortOnly) {
  const SocketAddress address = SocketAddress::inet6({1, 2, 3}, 80, 5);

  EXPECT_EQ(address.withPort(81), SocketAddress::inet6({1, 2, 3}, 81, 5));
  EXPECT_EQ(SocketAddress::loopback4(1).withPort(2), SocketAddress::loopback4(2));
}

TEST(SocketAddress, IsReadFromText) {
  EXPECT_EQ(reprint("127.0.0.1:8007"), "127.0.0.1:8007");
  EXPECT_EQ(reprint("0.0.0.0:0"), "0.0.0.0:0");
  EXPECT_EQ(reprint("[::1]:80"), "[::1]:80");
  EXPECT_EQ(reprint("[2001:DB8:0:0::1]:65535"), "[2001:db8::1]:65535");
  EXPECT_EQ(reprint("[fe80::1%3]:80"), "[fe80::1%3]:80");
  EXPECT_EQ(reprint("[::ffff:10.0.0.1]:80"), "[::ffff:10.0.0.1]:80");
  EXPECT_EQ(reprint("unix:/run/a.sock"), "unix:/run/a.sock");
  EXPECT_EQ(reprint("unix:relative"), "unix:relative");
  EXPECT_EQ(reprint("unix:@name"), "unix:@name");
}

TEST(SocketAddress, ScopeMayBeTheNameOfAnInterface) {
  EXPECT_EQ(SocketAddress::ofHost("fe80::1%lo", 80)->scope(), 1u);
  EXPECT_THAT(SocketAddress::ofHost("fe80::1%nosuchif0", 80).error().message(),
              HasSubstr("there is no such network interface"));
}

TEST(SocketAddress, RefusedTextsSayWhatWasExpected) {
  EXPECT_EQ(reprint("localhost"),
            "SocketAddress::parse \"localhost\" (expected host:port, [host]:port, unix:/path or "
            "unix:@name): Invalid argument");
  EXPECT_EQ(
      reprint("localhost:80"),
      "SocketAddress::ofHost \"localhost\" (expected numbers, such as 127.0.0.1 or ::1; names "
      "need a resolver): Invalid argument");
  EXPECT_THAT(reprint("::1:80"), HasSubstr("IPv6 hosts stand in brackets"));
  EXPECT_THAT(reprint("[127.0.0.1]:80"), HasSubstr("and no others do"));
  for (const char* text : {"1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:8x", "[::1]:"}) {
    EXPECT_THAT(reprint(text), HasSubstr("the port is a number from 0 to 65535")) << text;
  }
  for (const char* text : {"", ":80", "1.2.3:80", "1.2.3.4.5:80", "256.0.0.1:80", "1.2.3.4%1:80",
                           "[:::1]:80", "[::1%]:80", "unix:"}) {
    EXPECT_FALSE(SocketAddress::parse(text).ok()) << text;
  }
  EXPECT_FALSE(SocketAddress::ofHost(std::string_view("1.2.3.4\0", 8), 80).ok());
}

TEST(SocketAddress, IsMadeFromWhatTheKernelFilledIn) {
  const auto copy = [](const SocketAddress& a) {
    return SocketAddress::fromRaw(a.raw(), a.rawSize()).value();
  };
  const SocketAddress v4 = SocketAddress::loopback4(80);
  const SocketAddress v6 = SocketAddress::inet6({1}, 80, 3);
  const SocketAddress path = SocketAddress::unixPath("/a").value();
  const SocketAddress abstract = SocketAddress::unixAbstract(std::string_view("a\0b", 3)).value();

  EXPECT_EQ(copy(v4), v4);
  EXPECT_EQ(copy(v6), v6);
  EXPECT_EQ(copy(path), path);
  EXPECT_EQ(copy(abstract), abstract);
  EXPECT_EQ(copy(abstract).name(), std::string_view("a\0b", 3));
}

TEST(SocketAddress, OfAnUnnamedUnixSocketIsUnnamed) {
  const sa_family_t raw = AF_UNIX;
  const SocketAddress address = SocketAddress::fromRaw(&raw, sizeof raw).value();

  EXPECT_EQ(address.family(), AddressFamily::unixUnnamed);
  EXPECT_TRUE(address.isUnix());
  EXPECT_EQ(address.toString(), "unix:");
  EXPECT_EQ(address.name(), "");
  EXPECT_EQ(address.rawSize(), sizeof raw);
}

TEST(SocketAddress, RefusesFamiliesThatAreNotOurs) {
  sockaddr_storage raw{};
  raw.ss_family = AF_PACKET;

  EXPECT_EQ(SocketAddress::fromRaw(&raw, sizeof raw).error().errnoValue(), EAFNOSUPPORT);
  EXPECT_EQ(SocketAddress::fromRaw(&raw, 0).error().message(),
            "SocketAddress::fromRaw family 0, 0 bytes: Address family not supported by protocol");
  raw.ss_family = AF_INET;
  EXPECT_FALSE(SocketAddress::fromRaw(&raw, 8).ok());
  raw.ss_family = AF_INET6;
  EXPECT_FALSE(SocketAddress::fromRaw(&raw, sizeof(sockaddr_in)).ok());
}

TEST(SocketAddress, OfUnixIsCopiedWithItsName) {
  const SocketAddress path = SocketAddress::unixPath("/run/a.sock").value();
  SocketAddress copy(path);
  SocketAddress assigned = SocketAddress::loopback4(80);
  assigned = path;

  EXPECT_EQ(copy, path);
  EXPECT_EQ(assigned, path);
  EXPECT_NE(copy.raw(), path.raw());
  EXPECT_NE(copy.name().data(), assigned.name().data());
  copy = SocketAddress::unixAbstract("other").value();
  assigned = SocketAddress::loopback4(80);
  EXPECT_EQ(path.name(), "/run/a.sock");
  EXPECT_EQ(copy.toString(), "unix:@other");
  EXPECT_EQ(assigned.toString(), "127.0.0.1:80");
  EXPECT_EQ(assigned.name(), "");
}

TEST(SocketAddress, CopyOutlivesTheOneItWasMadeFrom) {
  SocketAddress copy;
  {
    const SocketAddress path = SocketAddress::unixPath("/run/a.sock").value();
    copy = path;
  }

  EXPECT_EQ(copy.toString(), "unix:/run/a.sock");
  EXPECT_EQ(copy.hash(), SocketAddress::unixPath("/run/a.sock")->hash());
}

TEST(SocketAddress, OfUnixIsMovedWithItsName) {
  SocketAddress first = SocketAddress::unixAbstract("bus").value();
  const char* name = first.name().data();

  SocketAddress second(std::move(first));
  EXPECT_EQ(second.name().data(), name);
  EXPECT_EQ(first, SocketAddress());  // NOLINT(bugprone-use-after-move): that is the question
  SocketAddress third = SocketAddress::unixPath("/gone").value();
  third = std::move(second);
  EXPECT_EQ(third.name().data(), name);
  EXPECT_EQ(third.toString(), "unix:@bus");
  EXPECT_FALSE(second);  // NOLINT(bugprone-use-after-move)
  second = third;
  EXPECT_EQ(second, third);
  third = SocketAddress();
  EXPECT_EQ(second.name(), "bus");
}

TEST(SocketAddress, MayBeAssignedToItself) {
  SocketAddress path = SocketAddress::unixPath("/run/a.sock").value();
  SocketAddress inet = SocketAddress::loopback4(80);
  SocketAddress& samePath = path;
  SocketAddress& sameInet = inet;

  path = samePath;
  inet = sameInet;
  EXPECT_EQ(path.name(), "/run/a.sock");
  EXPECT_EQ(inet.toString(), "127.0.0.1:80");
  path = std::move(samePath);
  inet = std::move(sameInet);
  EXPECT_EQ(path.name(), "/run/a.sock");
  EXPECT_EQ(inet.toString(), "127.0.0.1:80");
}

TEST(SocketAddress, StaysWhatItIsWhenSwapped) {
  std::vector<SocketAddress> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(SocketAddress::unixAbstract(std::to_string(i)).value());
    all.push_back(SocketAddress::loopback4(static_cast<std::uint16_t>(i)));
    all.push_back(SocketAddress::loopback6(static_cast<std::uint16_t>(i)));
  }
  const std::vector<SocketAddress> before = all;

  std::reverse(all.begin(), all.end());
  std::swap(all.front(), all.back());
  std::swap(all.front(), all.back());
  std::reverse(all.begin(), all.end());

  EXPECT_EQ(all, before);
}

TEST(SocketAddress, AllocatesForUnixNamesOnly) {
  const SocketAddress inet = SocketAddress::loopback6(80);
  const sa_family_t raw = AF_UNIX;
  const SocketAddress unnamed = SocketAddress::fromRaw(&raw, sizeof raw).value();
  const SocketAddress path = SocketAddress::unixPath("/run/a.sock").value();

  const auto before = test::heapCallsOfThread();
  SocketAddress copy = inet;
  copy = unnamed;
  const auto without = test::heapCallsOfThread();
  copy = path;
  const SocketAddress moved = std::move(copy);
  const auto with = test::heapCallsOfThread();

  EXPECT_EQ(without - before, 0u);
  EXPECT_EQ(with - without, test::countsHeap() ? 1u : 0u);
}

TEST(SocketAddress, IgnoresBytesThatAreNotPartOfTheAddress) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(80);
  std::memset(raw.sin_zero, 0xff, sizeof raw.sin_zero);

  EXPECT_EQ(SocketAddress::fromRaw(&raw, sizeof raw).value(), SocketAddress::any4(80));
}

TEST(SocketAddress, EqualOnesHaveEqualHashes) {
  std::unordered_set<SocketAddress> set;
  set.insert(SocketAddress::loopback4(80));
  set.insert(SocketAddress::parse("127.0.0.1:80").value());
  set.insert(SocketAddress::loopback4(81));
  set.insert(SocketAddress::unixPath("x").value());
  set.insert(SocketAddress::unixAbstract("x").value());

  EXPECT_EQ(set.size(), 4u);
  EXPECT_NE(SocketAddress::unixPath("x").value(), SocketAddress::unixAbstract("x").value());
}

RC_GTEST_PROP(SocketAddress, OfIPv4ReadsBackWhatItWrote,
              (const std::array<std::uint8_t, 4>& ip, std::uint16_t port)) {
  const SocketAddress address = SocketAddress::inet4(ip, port);

  RC_ASSERT(SocketAddress::parse(address.toString()).value() == address);
}

RC_GTEST_PROP(SocketAddress, OfIPv6ReadsBackWhatItWrote,
              (const std::array<std::uint8_t, 16>& ip, std::uint16_t port, std::uint32_t scope)) {
  const SocketAddress address = SocketAddress::inet6(ip, port, scope);

  RC_ASSERT(SocketAddress::parse(address.toString()).value() == address);
}

RC_GTEST_PROP(SocketAddress, NeverChokesOnText, (const std::string& text)) {
  const auto parsed = SocketAddress::parse(text);
  if (parsed.ok()) RC_ASSERT(SocketAddress::parse(parsed->toString()).value() == *parsed);
}

TEST(SocketAddressDeathTest, WithoutAPortHasNoneToChange) {
  EXPECT_DEATH(static_cast<void>(SocketAddress().withPort(1)), "an address that has no port");
}

}  // namespace
}  // namespace millrace
