// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/version.h>

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(Version, OfTheLibraryIsThatOfItsHeaders) {
  const std::string headers = std::to_string(MILLRACE_VERSION_MAJOR) + "." +
                              std::to_string(MILLRACE_VERSION_MINOR) + "." +
                              std::to_string(MILLRACE_VERSION_PATCH);

  EXPECT_EQ(version(), headers);
}

}  // namespace
}  // namespace millrace
