// SPDX-License-Identifier: Apache-2.0
// Certificates that change on disk, on a loop and a clock that are moved by hand.
#include "support/log_capture.h"
#include "support/loop_test.h"
#include "support/sanitized.h"
#include "support/scripted_engine.h"
#include "tls/temporary_folder.h"
#include "tls/test_ca.h"
#include "tls/tls_fixture.h"
#include "tls/tls_questions.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sys/resource.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::LogCapture;
using test::peerOf;
using test::ScriptedLoop;
using test::TemporaryFolder;
using test::TestAuthority;
using test::TestCertificate;
using test::testRoot;

TestCertificate issue(const std::string& name) {
  return testRoot().issue({.commonName = name, .names = "DNS:localhost"});
}

class TlsFiles : public testing::Test {
 protected:
  void SetUp() override {
    const TestCertificate first = issue("first");
    folder.write("chain.pem", first.chain());
    folder.write("key.pem", first.keyPem());
  }

  TlsContextBuilder settings() const {
    return TlsContextBuilder::forServer(
        TlsIdentity::fromFiles(folder / "chain.pem", folder / "key.pem"));
  }
  /// Moves the clock, then runs until a turn has nothing to do.
  void advance(Duration step) {
    loop->runNow();  // what was scheduled from outside is known from here on
    clock.advance(step);
    while (loop->runNow() != 0) {
    }
  }
  void replace(const TestCertificate& certificate) const {
    folder.replace("chain.pem", certificate.chain());
    folder.replace("key.pem", certificate.keyPem());
  }
  /// Who a new connection meets.
  static std::string serverOf(const TlsContext& server) {
    TlsPair pair(server,
                 TlsContextBuilder::forClient().trust(TlsTrust::fromPem(testRoot().pem())).build());
    pair.carry();
    return peerOf(pair.client());
  }

  const TemporaryFolder folder;
  ManualClock clock;
  ScriptedLoop loop{LoopOptions().clock(clock)};
  LogCapture log{"tls=info"};
};

TEST_F(TlsFiles, ThatDoNotChangeAreNotReadAgain) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);

  for (int i = 0; i < 10; ++i) advance(seconds(5));

  EXPECT_EQ(server.figures().reloads, 0U);
  EXPECT_EQ(log.records().size(), 0U);
}

TEST_F(TlsFiles, ReplacedByRenameAreReadAgain) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  replace(issue("second"));

  advance(milliseconds(4'999));
  EXPECT_EQ(serverOf(server), "CN=first");
  advance(milliseconds(1));

  EXPECT_EQ(serverOf(server), "CN=second");
  EXPECT_EQ(server.figures().reloads, 1U);
  EXPECT_TRUE(log.contains("certificates were read again"));
  advance(seconds(5));
  EXPECT_EQ(server.figures().reloads, 1U);
}

TEST_F(TlsFiles, ThatChangedBeforeTheWatchBeganAreReadAgain) {
  TlsContext server = settings().build();
  replace(issue("second"));
  const TlsFileWatch watch = server.watchFiles(*loop);

  advance(seconds(5));

  EXPECT_EQ(serverOf(server), "CN=second");
}

TEST_F(TlsFiles, ThatSomebodyElseHasReadAgainAreNotReadTwice) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  replace(issue("second"));
  ASSERT_TRUE(server.reload().ok());

  advance(seconds(5));

  EXPECT_EQ(server.figures().reloads, 1U);
}

TEST_F(TlsFiles, WrittenOverInPlaceAreReadAgain) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop, seconds(1));
  const TestCertificate second = issue("second");
  folder.write("chain.pem", second.chain());
  folder.write("key.pem", second.keyPem());

  advance(seconds(1));

  EXPECT_EQ(serverOf(server), "CN=second");
}

// As Kubernetes does it: a link to a folder is swapped, and all files change at once.
TEST_F(TlsFiles, BehindALinkThatIsSwappedAreReadAgain) {
  namespace fs = std::filesystem;
  for (const std::string name : {"one", "two"}) {
    const TestCertificate made = issue(name);
    fs::create_directory(folder / name);
    folder.write(name + "/chain.pem", made.chain());
    folder.write(name + "/key.pem", made.keyPem());
  }
  fs::create_directory_symlink("one", folder / "now");
  TlsContext server = TlsContextBuilder::forServer(
                          TlsIdentity::fromFiles(folder / "now/chain.pem", folder / "now/key.pem"))
                          .build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  EXPECT_EQ(serverOf(server), "CN=one");

  fs::create_directory_symlink("two", folder / "now.new");
  fs::rename(folder / "now.new", folder / "now");
  advance(seconds(5));

  EXPECT_EQ(serverOf(server), "CN=two");
}

TEST_F(TlsFiles, ThatAreWrongAreLoggedOnceAndTriedAgain) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  const TestCertificate second = issue("second");

  folder.replace("chain.pem", second.chain());  // its key is not there yet
  for (int i = 0; i < 3; ++i) advance(seconds(5));
  EXPECT_EQ(log.count(LogLevel::error), 1U);
  EXPECT_TRUE(log.contains("certificates stay as they were: TLS key " + (folder / "key.pem") +
                           " does not belong to certificate " + (folder / "chain.pem")));
  EXPECT_EQ(server.figures().failedReloads, 3U);
  EXPECT_EQ(serverOf(server), "CN=first");

  folder.replace("key.pem", second.keyPem());
  advance(seconds(5));
  EXPECT_EQ(serverOf(server), "CN=second");
  EXPECT_EQ(server.figures().reloads, 1U);
  EXPECT_EQ(log.count(LogLevel::error), 1U);
}

TEST_F(TlsFiles, ThatGoAwayLeaveEverythingAsItWas) {
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);

  std::filesystem::remove(folder / "key.pem");
  for (int i = 0; i < 3; ++i) advance(seconds(5));

  EXPECT_EQ(log.count(LogLevel::error), 1U);
  EXPECT_EQ(server.figures().failedReloads, 3U);
  EXPECT_EQ(serverOf(server), "CN=first");
}

// Nothing changes any more when there are descriptors again.
TEST_F(TlsFiles, ThatCouldNotBeReadForAWhileAreReadInTheEnd) {
  if (test::kSanitized) return;  // sanitizers need descriptors, too
  TlsContext server = settings().build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  const TestCertificate second = issue("second");
  folder.replace("chain.pem", second.chain());
  folder.replace("key.pem", second.keyPem());

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  advance(seconds(5));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(server.figures().failedReloads, 1U);
  advance(seconds(5));

  EXPECT_EQ(serverOf(server), "CN=second");
}

TEST_F(TlsFiles, OfNamesAndTrustAreWatchedToo) {
  const TestCertificate named = issue("named");
  folder.write("named.pem", named.chain());
  folder.write("named.key", named.keyPem());
  folder.write("ca.pem", testRoot().pem());
  TlsContext server =
      settings()
          .identity("a.org", TlsIdentity::fromFiles(folder / "named.pem", folder / "named.key"))
          .clientAuth(TlsClientAuth::optional)
          .trust(TlsTrust::fromFile(folder / "ca.pem"))
          .build();
  const TlsFileWatch watch = server.watchFiles(*loop);

  folder.replace("ca.pem", TestAuthority("other").pem());
  advance(seconds(5));
  EXPECT_EQ(server.figures().reloads, 1U);

  const TestCertificate next = issue("next");
  folder.replace("named.pem", next.chain());
  folder.replace("named.key", next.keyPem());
  advance(seconds(5));
  EXPECT_EQ(server.figures().reloads, 2U);
}

// The files that matter are those of the settings that are in force.
TEST_F(TlsFiles, OfLaterSettingsAreWatched) {
  TlsContext server = TlsContextBuilder::forServer(testIdentity()).build();
  const TlsFileWatch watch = server.watchFiles(*loop);
  ASSERT_TRUE(server.reload(settings()).ok());
  advance(seconds(5));
  const std::uint64_t before = server.figures().reloads;

  replace(issue("second"));
  advance(seconds(5));

  EXPECT_EQ(serverOf(server), "CN=second");
  EXPECT_EQ(server.figures().reloads, before + 1);
}

TEST_F(TlsFiles, AreNotWatchedAfterStop) {
  TlsContext server = settings().build();
  TlsFileWatch watch = server.watchFiles(*loop);
  watch.stop();
  watch.stop();
  replace(issue("second"));

  advance(seconds(50));

  EXPECT_EQ(server.figures().reloads, 0U);
}

TEST_F(TlsFiles, AreNotWatchedWhenTheHandleHasGone) {
  TlsContext server = settings().build();
  { const TlsFileWatch watch = server.watchFiles(*loop); }
  replace(issue("second"));

  advance(seconds(50));

  EXPECT_EQ(server.figures().reloads, 0U);
}

TEST_F(TlsFiles, AreWatchedByTheHandleThatWasMovedTo) {
  TlsContext server = settings().build();
  TlsContext other = settings().build();
  TlsFileWatch watch = other.watchFiles(*loop);
  watch = server.watchFiles(*loop);
  TlsFileWatch last(std::move(watch));
  replace(issue("second"));

  advance(seconds(5));

  EXPECT_EQ(server.figures().reloads, 1U);
  EXPECT_EQ(other.figures().reloads, 0U);  // its handle was assigned to
}

TEST_F(TlsFiles, AreLookedAtEveryTimeAboveZero) {
  TlsContext server = settings().build();

  EXPECT_EQ(test::textOf<std::invalid_argument>(
                [&] { static_cast<void>(server.watchFiles(*loop, Duration(0))); }),
            "TlsContext::watchFiles() needs a time above 0");
}

}  // namespace
}  // namespace millrace
