// SPDX-License-Identifier: Apache-2.0
#include "tls/file_marks.h"

#include <sys/stat.h>
#include <vector>

namespace millrace::tls {

namespace {

std::vector<std::string> filesOf(const Settings& settings) {
  std::vector<std::string> paths;
  const auto add = [&paths](const TlsIdentity& identity) {
    if (!identity.isFile()) return;
    paths.push_back(identity.chain());
    paths.push_back(identity.key());
  };
  if (settings.identity) add(*settings.identity);
  for (const auto& each : settings.named) add(each.identity);
  if (settings.trust && settings.trust->kind() == TlsTrust::Kind::file) {
    paths.push_back(settings.trust->source());
  }
  return paths;
}

}  // namespace

std::string marksOfFiles(const Settings& settings) {
  std::string marks;
  for (const std::string& path : filesOf(settings)) {
    struct stat found {};
    const bool exists = ::stat(path.c_str(), &found) == 0;
    for (const auto number :
         {exists ? static_cast<long long>(found.st_ino) : -1LL,
          static_cast<long long>(found.st_size), static_cast<long long>(found.st_mtim.tv_sec),
          static_cast<long long>(found.st_mtim.tv_nsec),
          static_cast<long long>(found.st_ctim.tv_sec),
          static_cast<long long>(found.st_ctim.tv_nsec)}) {
      marks += std::to_string(number) + " ";
    }
  }
  return marks;
}

}  // namespace millrace::tls
