// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/fd.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <fcntl.h>

namespace millrace {
namespace {

using test::FaultScript;

int openNull() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(Fd, MadeFromNothingIsInvalid) {
  const Fd none;
  const Fd negative(-7);

  EXPECT_FALSE(none.valid());
  EXPECT_FALSE(static_cast<bool>(none));
  EXPECT_EQ(negative.get(), -1);
}

TEST(Fd, ClosesWhenItDies) {
  const int number = openNull();
  {
    const Fd fd(number);
    EXPECT_TRUE(fd.valid());
    EXPECT_EQ(fd.get(), number);
    EXPECT_TRUE(isOpen(number));
  }
  EXPECT_FALSE(isOpen(number));
}

TEST(Fd, MovingGivesTheDescriptorAway) {
  const int number = openNull();
  Fd first(number);
  Fd second(std::move(first));
  Fd third(openNull());
  const int replaced = third.get();

  third = std::move(second);

  EXPECT_FALSE(first.valid());   // NOLINT: moved-from is invalid by contract
  EXPECT_FALSE(second.valid());  // NOLINT
  EXPECT_EQ(third.get(), number);
  EXPECT_FALSE(isOpen(replaced));
  EXPECT_TRUE(isOpen(number));
}

TEST(Fd, AssignmentToItselfKeepsTheDescriptor) {
  Fd fd(openNull());
  Fd& same = fd;

  fd = std::move(same);

  EXPECT_TRUE(isOpen(fd.get()));
}

TEST(Fd, ReleaseGivesUpWithoutClosing) {
  Fd fd(openNull());

  const int number = fd.release();

  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(isOpen(number));
  EXPECT_EQ(fd.release(), -1);
  fd.reset(number);
}

TEST(Fd, ResetClosesOnce) {
  FaultScript script;
  Fd fd(openNull());

  fd.reset();
  fd.reset();

  EXPECT_EQ(script.count("close"), 1u);
}

TEST(Fd, IgnoresWhatCloseSaysAndKeepsErrno) {
  const int number = openNull();
  {
    FaultScript script;
    script.fail("close", 1, EINTR);
    Fd fd(number);
    errno = ENOENT;

    fd.reset();

    EXPECT_EQ(errno, ENOENT);
    EXPECT_FALSE(fd.valid());
    EXPECT_EQ(script.count("close"), 1u);  // never again: the number may be somebody else's by now
  }
  Fd{number}.reset();
}

TEST(Fd, NothingNegativeIsOpen) {
  EXPECT_FALSE(isOpen(-1));
  EXPECT_FALSE(isOpen(1 << 20));
}

TEST(FdDeathTest, ClosingTwiceEndsTheProcess) {
  EXPECT_DEATH(
      {
        const Fd first(openNull());
        const Fd second(first.get());
      },
      "a descriptor was closed twice");
}

TEST(FdDeathTest, ResetToTheSameDescriptorEndsTheProcess) {
  EXPECT_DEATH(
      {
        Fd fd(openNull());
        fd.reset(fd.get());
      },
      "Fd::reset\\(\\) with the descriptor that it has");
}

}  // namespace
}  // namespace millrace
