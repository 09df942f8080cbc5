// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/thread.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;

int allowedCpus() {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

// A tree of files as the kernel shows them, of this test only.
class AvailableCpus : public testing::Test {
 protected:
  AvailableCpus() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mr-cpus-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    sources = {(root / "own").string(), (root / "cgroup").string()};
  }
  ~AvailableCpus() override { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }

  std::filesystem::path root;
  CpuSources sources;
};

TEST_F(AvailableCpus, AreAtLeastOneAndAtMostWhatAffinityAllows) {
  EXPECT_GE(availableCpus(), 1);
  EXPECT_LE(availableCpus(), allowedCpus());
}

TEST_F(AvailableCpus, WithoutCgroupsAreThoseOfTheAffinity) {
  EXPECT_EQ(availableCpus(sources), allowedCpus());
}

TEST_F(AvailableCpus, AreFewerAfterPinning) {
  int counted = 0;
  int cpu = 0;
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  while (!CPU_ISSET(cpu, &mask)) ++cpu;

  startThread("t",
              [&] {
                EXPECT_TRUE(pinThread({cpu}).ok());
                counted = availableCpus(sources);
              })
      .orThrow()
      .join();

  EXPECT_EQ(counted, 1);
}

TEST_F(AvailableCpus, AreLimitedByAQuotaOfVersion2) {
  write("own", "0::/app\n");
  write("cgroup/app/cpu.max", "50000 100000\n");

  EXPECT_EQ(availableCpus(sources), 1);
}

TEST_F(AvailableCpus, AreNotLimitedWithoutAQuotaInVersion2) {
  write("own", "0::/app\n");
  write("cgroup/app/cpu.max", "max 100000\n");

  EXPECT_EQ(availableCpus(sources), allowedCpus());
}

TEST_F(AvailableCpus, AreLimitedByTheTightestQuotaOnTheWayUp) {
  write("own", "0::/a/b/c\n");
  write("cgroup/a/b/c/cpu.max", "max 100000\n");
  write("cgroup/a/cpu.max", "100000 100000\n");

  EXPECT_EQ(availableCpus(sources), 1);
}

TEST_F(AvailableCpus, AreLimitedByTheRootWhenThePathIsTheHosts) {
  write("own", "0::/docker/0123456789\n");
  write("cgroup/cpu.max", "10000 100000\n");

  EXPECT_EQ(availableCpus(sources), 1);
}

TEST_F(AvailableCpus, AreLimitedByAQuotaOfVersion1) {
  for (const char* folder : {"cpu,cpuacct", "cpu"}) {
    write("own", "4:memory:/app\n3:cpu,cpuacct:/app\n0::/\n");
    write(std::string("cgroup/") + folder + "/app/cpu.cfs_quota_us", "100000\n");
    write(std::string("cgroup/") + folder + "/app/cpu.cfs_period_us", "100000\n");

    EXPECT_EQ(availableCpus(sources), 1) << folder;
    std::filesystem::remove_all(root / "cgroup");
  }
}

TEST_F(AvailableCpus, AreNotLimitedWithoutAQuotaInVersion1) {
  write("own", "3:cpu,cpuacct:/\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");

  EXPECT_EQ(availableCpus(sources), allowedCpus());
}

TEST_F(AvailableCpus, AreRoundedUp) {
  write("own", "0::/\n");
  write("cgroup/cpu.max", "100001 100000\n");

  EXPECT_EQ(availableCpus(sources), std::min(2, allowedCpus()));
}

TEST_F(AvailableCpus, AreNotLimitedByNonsense) {
  for (const char* text : {"", "100000", "a b", "100000 0", "-5 100000", "0 100000"}) {
    write("own", "0::/\nno colons here\n");
    write("cgroup/cpu.max", text);

    EXPECT_EQ(availableCpus(sources), allowedCpus()) << '"' << text << '"';
  }
}

TEST_F(AvailableCpus, TakeLargerMasksWhereTheKernelWantsThem) {
  FaultScript script;
  script.fail("sched_getaffinity", 1, EINVAL, 2);

  EXPECT_EQ(availableCpus(sources), allowedCpus());
  EXPECT_EQ(script.count("sched_getaffinity"), 3u);
}

TEST_F(AvailableCpus, AreOneWhenTheKernelDoesNotSay) {
  FaultScript script;
  script.failAll("sched_getaffinity", EPERM);
  EXPECT_EQ(availableCpus(sources), 1);

  script.failAll("sched_getaffinity", EINVAL);
  EXPECT_EQ(availableCpus(sources), 1);
}

TEST_F(AvailableCpus, SurviveReadsThatFail) {
  write("own", "0::/\n");
  write("cgroup/cpu.max", "10000 100000\n");
  FaultScript script;
  script.interruptFirstTries().shortTransfers(3);
  EXPECT_EQ(availableCpus(sources), 1);

  script.failAll("read", EIO);
  EXPECT_EQ(availableCpus(sources), allowedCpus());
}

}  // namespace
}  // namespace millrace
