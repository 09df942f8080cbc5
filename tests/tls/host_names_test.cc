// SPDX-License-Identifier: Apache-2.0
#include "tls/host_names.h"

#include <gtest/gtest.h>

namespace millrace::tls {
namespace {

const std::string kLabel63(63, 'a');

TEST(HostNames, ANormalNameIsInLowerCaseAndHasNoDotAtItsEnd) {
  EXPECT_EQ(normalHostName("example.org"), "example.org");
  EXPECT_EQ(normalHostName("WWW.Example.ORG"), "www.example.org");
  EXPECT_EQ(normalHostName("example.org."), "example.org");
  EXPECT_EQ(normalHostName("localhost"), "localhost");
  EXPECT_EQ(normalHostName("a"), "a");
  EXPECT_EQ(normalHostName("xn--bcher-kva.example"), "xn--bcher-kva.example");
  EXPECT_EQ(normalHostName("_dmarc.example_x.org"), "_dmarc.example_x.org");
  EXPECT_EQ(normalHostName("1.2.3.4a"), "1.2.3.4a");
  EXPECT_EQ(normalHostName("9to5.example"), "9to5.example");
}

// T3
TEST(HostNames, WhatIsNoHostNameHasNoNormalForm) {
  using namespace std::string_view_literals;
  for (const std::string_view strange : {""sv,
                                         "."sv,
                                         ".."sv,
                                         ".example.org"sv,
                                         "example..org"sv,
                                         "example.org.."sv,
                                         "-a.org"sv,
                                         "a-.org"sv,
                                         "a b.org"sv,
                                         "a\0b.org"sv,
                                         "a\0"sv,
                                         "\0"sv,
                                         "b\xc3\xbc"
                                         "cher.example"sv,
                                         "a/b"sv,
                                         "a:443"sv,
                                         "a@b"sv,
                                         "a%b"sv,
                                         "a\nb"sv,
                                         "*"sv,
                                         "*.org"sv,
                                         "f*o.org"sv}) {
    EXPECT_EQ(normalHostName(strange), std::nullopt) << strange;
  }
}

// T3
TEST(HostNames, AddressesAreNoHostNames) {
  for (const std::string_view address : {"127.0.0.1", "127.0.0.1.", "1", "10.1", "::1", "[::1]",
                                         "2001:db8::1", "fe80::1%eth0", "example.123"}) {
    EXPECT_EQ(normalHostName(address), std::nullopt) << address;
  }
}

TEST(HostNames, ALabelHas63CharactersAtMostAndANameHas253) {
  EXPECT_EQ(normalHostName(kLabel63 + ".org"), kLabel63 + ".org");
  EXPECT_EQ(normalHostName(kLabel63 + "a.org"), std::nullopt);

  const std::string longest =
      kLabel63 + "." + kLabel63 + "." + kLabel63 + "." + std::string(61, 'b');
  ASSERT_EQ(longest.size(), 253U);
  EXPECT_EQ(normalHostName(longest), longest);
  EXPECT_EQ(normalHostName(longest + "."), longest);
  EXPECT_EQ(normalHostName(longest + "b"), std::nullopt);
  EXPECT_EQ(normalHostName(std::string(65'535, 'a')), std::nullopt);
}

TEST(HostNames, APatternMayBeginWithOneStarForALabel) {
  EXPECT_EQ(normalPattern("*.Example.org."), "*.example.org");
  EXPECT_EQ(normalPattern("example.ORG"), "example.org");
  for (const std::string_view wrong : {"", "*", "*.", "**.example.org", "*.*.example.org",
                                       "a.*.example.org", "*a.example.org", "*.127.0.0.1", "*.."}) {
    EXPECT_EQ(normalPattern(wrong), std::nullopt) << wrong;
  }
}

TEST(HostNames, AStarStandsForExactlyOneLabel) {
  HostNames names;
  names.add("*.example.org", 7);

  EXPECT_EQ(names.find("a.example.org"), 7U);
  EXPECT_EQ(names.find("b.example.org"), 7U);
  EXPECT_EQ(names.find("example.org"), std::nullopt);
  EXPECT_EQ(names.find("a.b.example.org"), std::nullopt);
  EXPECT_EQ(names.find("a.example.com"), std::nullopt);
  EXPECT_EQ(names.find("org"), std::nullopt);
}

TEST(HostNames, AnExactNameGoesBeforeAStar) {
  HostNames names;
  names.add("*.example.org", 1);
  names.add("www.example.org", 2);

  EXPECT_EQ(names.find("www.example.org"), 2U);
  EXPECT_EQ(names.find("ftp.example.org"), 1U);
}

TEST(HostNames, TheLastOneWithANameWins) {
  HostNames names;
  EXPECT_TRUE(names.empty());
  names.add("example.org", 1);
  names.add("example.org", 2);

  EXPECT_FALSE(names.empty());
  EXPECT_EQ(names.find("example.org"), 2U);
}

}  // namespace
}  // namespace millrace::tls
