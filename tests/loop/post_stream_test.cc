// SPDX-License-Identifier: Apache-2.0
#include "loop/post_stream.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

/// A clock that moves with each reading, and an inbox that fills at a moment.
struct Scene {
  std::int64_t moment = 0;
  std::int64_t fillsAt = 1'000'000;
  int looks = 0;

  bool gather(const PostStream& stream) {
    return stream.gather(
        moment, [this] { return moment += 50; },
        [this] {
          ++looks;
          return moment < fillsAt;
        });
  }
};

TEST(PostStream, IsNoneAtFirstAndForFewTasks) {
  PostStream stream;
  Scene scene;
  EXPECT_FALSE(scene.gather(stream));
  stream.looked(PostStream::kMany - 1, 0, true);
  EXPECT_FALSE(scene.gather(stream));
  EXPECT_EQ(scene.moment, 0);
  EXPECT_EQ(scene.looks, 0);
}

TEST(PostStream, LeavesAMomentBetweenTwoLooks) {
  PostStream stream;
  Scene scene;
  stream.looked(PostStream::kMany, 0, true);
  EXPECT_TRUE(scene.gather(stream));
  EXPECT_GE(scene.moment, PostStream::kLeastNanos);
  EXPECT_LE(scene.moment, PostStream::kLeastNanos + 50);
  EXPECT_EQ(scene.looks, 0);  // that is the point
}

TEST(PostStream, DoesNotWaitWhenTheTasksTookLongEnough) {
  PostStream stream;
  Scene scene;
  stream.looked(PostStream::kMany, 0, true);
  scene.moment = PostStream::kLeastNanos;
  EXPECT_TRUE(scene.gather(stream));
  EXPECT_EQ(scene.moment, PostStream::kLeastNanos);
}

TEST(PostStream, WaitsLongerForSlowerPosts) {
  const auto waitAfter = [](std::int64_t nanosPerTask) {
    PostStream stream;
    Scene scene;
    stream.looked(PostStream::kMany, 0, true);
    scene.moment = 10 * nanosPerTask;
    stream.looked(10, scene.moment, true);
    const std::int64_t before = scene.moment;
    EXPECT_TRUE(scene.gather(stream));
    return scene.moment - before;
  };
  EXPECT_LE(waitAfter(1), PostStream::kLeastNanos + 50);
  EXPECT_NEAR(static_cast<double>(waitAfter(30)), 30.0 * PostStream::kBatch, 50);
  EXPECT_LE(waitAfter(300), PostStream::kMostNanos + 50);
}

TEST(PostStream, LooksOnForAWhileWhenNothingCame) {
  PostStream stream;
  Scene scene;
  stream.looked(100, 0, true);
  stream.looked(0, 700, true);
  scene.moment = 700;
  scene.fillsAt = 2'000;
  EXPECT_TRUE(scene.gather(stream));
  EXPECT_GE(scene.moment, 2'000);

  stream.looked(100, 2'000, true);
  stream.looked(0, 2'700, true);
  scene.fillsAt = 1'000'000;
  EXPECT_FALSE(scene.gather(stream));
  EXPECT_GE(scene.moment, 2'000 + PostStream::kOverNanos);
  stream.looked(0, scene.moment, true);
  const std::int64_t before = scene.moment;
  EXPECT_FALSE(scene.gather(stream));  // it is over
  EXPECT_EQ(scene.moment, before);
}

TEST(PostStream, EndsWithAFewTasks) {
  PostStream stream;
  Scene scene;
  stream.looked(100, 0, true);
  stream.looked(1, 10, true);
  EXPECT_FALSE(scene.gather(stream));
}

TEST(PostStream, IsNotGatheredByALoopThatHasMoreToLookAt) {
  PostStream stream;
  Scene scene;
  stream.looked(100, 0, false);
  EXPECT_FALSE(scene.gather(stream));
  EXPECT_EQ(scene.moment, 0);
}

TEST(PostStream, SaysWhenTheLoopIsBehindUntilItHasCaughtUp) {
  PostStream stream;
  stream.looked(PostStream::kBehind, 0, true);
  EXPECT_FALSE(stream.isBehind());
  stream.looked(PostStream::kBehind + 1, 0, true);
  EXPECT_TRUE(stream.isBehind());
  stream.looked(PostStream::kCaughtUp + 1, 0, true);
  EXPECT_TRUE(stream.isBehind());
  stream.looked(PostStream::kCaughtUp, 0, true);
  EXPECT_FALSE(stream.isBehind());
  stream.looked(PostStream::kCaughtUp + 1, 0, true);
  EXPECT_FALSE(stream.isBehind());
}

// A look that finds nothing is told to the stream as long as it says so: producers that ease off
// would do it for ever otherwise.
TEST(PostStream, IsNotBehindWhenItNeedNotBeTold) {
  PostStream stream;
  stream.looked(PostStream::kBehind + 1, 0, false);
  EXPECT_TRUE(stream.isOn());
  stream.looked(0, 10, false);
  EXPECT_FALSE(stream.isBehind());
  EXPECT_FALSE(stream.isOn());
}

}  // namespace
}  // namespace millrace
