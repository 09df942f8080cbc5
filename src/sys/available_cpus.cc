// SPDX-License-Identifier: Apache-2.0
// How many processors there are for us: affinity, then the quotas of the cgroups we are in.
#include <millrace/sys/calls.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/thread.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <optional>
#include <sched.h>

namespace millrace {

namespace {

constexpr int kNoLimit = 1 << 20;

std::optional<std::string> readText(const std::string& path) {
  const Fd file(calls().open(path.c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (!file.valid()) return std::nullopt;
  std::string text;
  char part[512];
  for (;;) {
    const auto got = calls().read(file.get(), part, sizeof part);
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) return std::nullopt;
  }
}

// The part of `text` before `end`, which is taken off together with it.
std::string_view cut(std::string_view& text, char end) {
  const auto at = text.find(end);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// A quota of -1 (v1), of "max" (v2) or one that makes no sense is no limit.
int cpusOf(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return kNoLimit;
  const std::int64_t whole = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(whole, kNoLimit));
}

int limitV2(const std::string& folder) {
  const auto text = readText(folder + "/cpu.max");
  if (!text) return kNoLimit;
  std::string_view rest = *text;
  const auto quota = number(cut(rest, ' '));
  return cpusOf(quota, number(rest));
}

int limitV1(const std::string& folder) {
  const auto quota = readText(folder + "/cpu.cfs_quota_us");
  const auto period = readText(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return kNoLimit;
  return cpusOf(number(*quota), number(*period));
}

// The tightest limit of `path` and all its parents below `root`. In a container the path may be the
// host's and not exist here; the root is looked at in any case.
int tightest(const std::string& root, std::string_view path, int (*limit)(const std::string&)) {
  int least = kNoLimit;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.remove_suffix(1);
    least = std::min(least, limit(root + std::string(path)));
    if (path.empty()) return least;
    path = path.substr(0, path.rfind('/'));
  }
}

bool names(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    if (cut(controllers, ',') == wanted) return true;
  }
  return false;
}

// Lines are "0::/path" for v2 and "3:cpu,cpuacct:/path" for v1; on a mixed system there are both.
int quotaLimit(const CpuSources& sources) {
  const auto text = readText(sources.ownCgroups);
  if (!text) return kNoLimit;
  int least = kNoLimit;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view path = cut(rest, '\n');
    const std::string_view hierarchy = cut(path, ':');
    const std::string_view controllers = cut(path, ':');
    if (hierarchy == "0" && controllers.empty()) {
      least = std::min(least, tightest(sources.cgroupRoot, path, &limitV2));
    } else if (names(controllers, "cpu")) {
      const std::string joined = sources.cgroupRoot + "/" + std::string(controllers);
      least = std::min(least, tightest(joined, path, &limitV1));
      least = std::min(least, tightest(sources.cgroupRoot + "/cpu", path, &limitV1));
    }
  }
  return least;
}

int affinityLimit() {
  // Machines with more processors than the mask has bits answer EINVAL: try larger ones.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t size = sets * sizeof(cpu_set_t);
    if (calls().sched_getaffinity(0, size, mask.data()) == 0) {
      return CPU_COUNT_S(size, mask.data());
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

}  // namespace

int availableCpus(const CpuSources& sources) {
  return std::max(1, std::min(affinityLimit(), quotaLimit(sources)));
}

}  // namespace millrace
