// SPDX-License-Identifier: Apache-2.0
// A folder for the files of one test, gone with it.
#pragma once

#include <millrace/base/check.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace millrace::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace-XXXXXX").string();
    MR_CHECK(::mkdtemp(pattern.data()) != nullptr, "there is no folder for a test");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Its path. An old file of this name is written over.
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = *this / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  /// The same, as careful people do it: the name has the old file, then the new one.
  std::string replace(const std::string& name, const std::string& text) const {
    std::filesystem::rename(write(name + ".new", text), *this / name);
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace millrace::test
