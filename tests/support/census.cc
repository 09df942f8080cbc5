// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"

#include <array>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <thread>
#include <unistd.h>

namespace millrace::test {

namespace {

struct Settings {
  std::map<std::string, std::function<std::int64_t()>> gauges;
  std::vector<std::string> ignoredThreads;
};

Settings& settings() {
  static Settings& made = *new Settings;
  return made;
}

struct CloseDir {
  void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};

// Calls `fn(number)` for every entry of the folder that is a number, but for the folder's own
// descriptor.
template <class F>
void forEachNumber(const char* folder, F fn) {
  const std::unique_ptr<DIR, CloseDir> dir(::opendir(folder));
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir.get())) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0' || number == ::dirfd(dir.get())) continue;
    fn(std::int64_t{number}, std::string(folder) + "/" + entry->d_name);
  }
}

bool isIgnored(std::string_view thread) {
  for (const std::string& prefix : settings().ignoredThreads) {
    if (thread.starts_with(prefix)) return true;
  }
  return false;
}

void countDescriptors(Census& census) {
  forEachNumber("/proc/self/fd", [&census](std::int64_t number, const std::string& path) {
    std::array<char, 256> target{};
    // One that is closed meanwhile, by a thread that still runs, is none.
    if (::readlink(path.c_str(), target.data(), target.size() - 1) <= 0) return;
    census.descriptors.emplace(number, target.data());
  });
}

void countThreads(Census& census) {
  forEachNumber("/proc/self/task", [&census](std::int64_t number, const std::string& path) {
    std::string name;
    if (!std::getline(std::ifstream(path + "/comm"), name)) return;
    if (!isIgnored(name)) census.threads.emplace(number, name);
  });
}

void compare(const char* what, const std::map<std::int64_t, std::string>& before,
             const std::map<std::int64_t, std::string>& after, std::vector<std::string>& out) {
  for (const auto& [number, name] : after) {
    const auto was = before.find(number);
    if (was != before.end()) continue;
    out.push_back(what + (" " + std::to_string(number)) + " (" + name + ")");
  }
}

}  // namespace

Census Census::take() {
  Census census;
  countDescriptors(census);
  countThreads(census);
  for (const auto& [name, read] : settings().gauges) census.gauges.emplace(name, read());
  return census;
}

std::vector<std::string> leaksBetween(const Census& before, const Census& after) {
  std::vector<std::string> leaks;
  compare("descriptor", before.descriptors, after.descriptors, leaks);
  compare("thread", before.threads, after.threads, leaks);
  for (const auto& [name, value] : after.gauges) {
    const auto was = before.gauges.find(name);
    const std::int64_t least = was == before.gauges.end() ? 0 : was->second;
    if (value <= least) continue;
    leaks.push_back(name + ": " + std::to_string(value) + ", before the test " +
                    std::to_string(least));
  }
  return leaks;
}

std::vector<std::string> leaksSince(const Census& before, Duration limit) {
  const Deadline until = Deadline::after(limit);
  for (;;) {
    std::vector<std::string> leaks = leaksBetween(before, Census::take());
    if (leaks.empty() || until.isDue(Clock::real().nanos())) return leaks;
    std::this_thread::yield();
  }
}

void addCensusGauge(std::string name, std::function<std::int64_t()> read) {
  settings().gauges[std::move(name)] = std::move(read);
}

void ignoreThreadsInCensus(std::string prefix) {
  settings().ignoredThreads.push_back(std::move(prefix));
}

void CensusListener::OnTestStart(const testing::TestInfo&) { before_ = Census::take(); }

void CensusListener::OnTestEnd(const testing::TestInfo&) {
  for (const std::string& leak : leaksSince(before_, patience_)) {
    ADD_FAILURE() << "the test left behind: " << leak;
  }
}

}  // namespace millrace::test
