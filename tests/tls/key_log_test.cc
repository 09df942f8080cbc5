// SPDX-License-Identifier: Apache-2.0
// The file of secrets that tshark reads (which ./dev test interop lets it do).
#include "support/log_capture.h"
#include "tls/temporary_folder.h"
#include "tls/tls_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <sys/stat.h>

namespace millrace {
namespace {

using testing::HasSubstr;

/// The names of the secrets, and whose they are: one line each.
std::vector<std::string> namesIn(const std::string& path) {
  std::vector<std::string> found;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, random, secret, more;
    words >> name >> random >> secret;
    EXPECT_EQ(random.size(), 64U) << line;
    EXPECT_GE(secret.size(), 64U) << line;
    EXPECT_FALSE(words >> more) << line;
    found.push_back(name);
  }
  return found;
}

TEST(KeyLog, HasTheSecretsOfBothEnds) {
  const test::TemporaryFolder folder;
  const test::LogCapture logs("warn");
  const std::string server = folder / "server";
  const std::string client = folder / "client";
  {
    TlsPair pair(serverBuilder().keyLogFile(server), clientBuilder().keyLogFile(client));
    pair.carry();
    TlsPair other(serverBuilder(), clientBuilder());
    other.carry();
  }

  const auto names = testing::UnorderedElementsAre(
      "SERVER_HANDSHAKE_TRAFFIC_SECRET", "EXPORTER_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
      "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0");
  EXPECT_THAT(namesIn(server), names);
  EXPECT_THAT(namesIn(client), names);
  struct stat about {};
  ASSERT_EQ(::stat(server.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U) << "nobody else may read it";
  EXPECT_TRUE(logs.contains("secrets are written to " + server));
}

TEST(KeyLog, IsAddedTo) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("secrets", "");
  for (int i = 0; i < 2; ++i) {
    const auto only = [](TlsContextBuilder builder) {
      return builder.versions(TlsVersion::tls12, TlsVersion::tls12);
    };
    TlsPair pair(only(serverBuilder()).keyLogFile(path), only(clientBuilder()));
    pair.carry();
  }
  EXPECT_THAT(namesIn(path), testing::ElementsAre("CLIENT_RANDOM", "CLIENT_RANDOM"));
}

TEST(KeyLog, ThatCannotBeOpenedIsNamed) {
  const test::TemporaryFolder folder;
  const Result<TlsContext> made = serverBuilder().keyLogFile(folder / "no/such/file").tryBuild();
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message(), HasSubstr("the key log " + (folder / "no/such/file")));
}

}  // namespace
}  // namespace millrace
