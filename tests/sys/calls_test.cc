// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>
#include <millrace/sys/eventfd.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

namespace millrace {
namespace {

int failToMakeEventfd(unsigned, int) {
  errno = ENFILE;
  return -1;
}

TEST(Calls, AreTheRealOnesByDefault) { EXPECT_EQ(&calls(), &realCalls()); }

TEST(Calls, TableIsComplete) {
  const auto* entries = reinterpret_cast<void* const*>(&realCalls());

  for (std::size_t i = 0; i < sizeof(Calls) / sizeof(void*); ++i) {
    EXPECT_NE(entries[i], nullptr) << "entry " << i;
  }
}

TEST(Calls, GoThroughTheTableThatReplacedThem) {
  Calls table = realCalls();
  table.eventfd = &failToMakeEventfd;

  const Calls* old = replaceCalls(&table);
  const Result<Fd> failed = eventFd();
  const Calls* mine = replaceCalls(nullptr);
  const Result<Fd> made = eventFd();

  EXPECT_EQ(old, &realCalls());
  EXPECT_EQ(mine, &table);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().errnoValue(), ENFILE);
  EXPECT_TRUE(made.ok());
}

TEST(Calls, CanBeReplacedWhileOthersCall) {
  static const Calls copy = realCalls();
  std::atomic<bool> stop{false};
  std::thread other([&stop] {
    while (!stop.load()) EXPECT_TRUE(eventFd().ok());
  });

  for (int i = 0; i < 2000; ++i) {
    replaceCalls(&copy);
    replaceCalls(nullptr);
  }
  stop.store(true);
  other.join();
}

}  // namespace
}  // namespace millrace
