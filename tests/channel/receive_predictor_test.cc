// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/receive_predictor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

ReceivePredictor begun(const ReceiveSizes& sizes) {
  ReceivePredictor predictor;
  predictor.begin(sizes);
  return predictor;
}

/// A burst whose reads bring `total` bytes; buffers that are filled are followed by another.
void burst(ReceivePredictor& predictor, std::size_t total) {
  std::size_t left = total;
  while (left >= predictor.guess()) {
    left -= predictor.guess();
    predictor.filled();
  }
  predictor.burstEnded(total, predictor.guess());
}

// behaviour 3.12: defaults; ours go up to 512 KiB; C135
TEST(ReceivePredictor, BeginsWithTheInitialSize) {
  EXPECT_EQ(ReceivePredictor().guess(), 2048U);
  EXPECT_EQ(begun({}).guess(), 2048U);
  EXPECT_EQ(begun({.min = 64, .initial = 512, .max = 4096}).guess(), 512U);
  EXPECT_EQ(begun({.min = 64, .initial = 513, .max = 4096}).guess(), 1024U);
}

// behaviour 3.12 item 1: within one burst; by a factor of four
TEST(ReceivePredictor, GrowsAtOnceWhenABufferWasFilled) {
  ReceivePredictor predictor = begun({.min = 64, .initial = 512, .max = 512 * 1024});
  std::vector<std::size_t> guesses;
  for (int i = 0; i < 7; ++i) {
    guesses.push_back(predictor.guess());
    predictor.filled();
  }
  EXPECT_THAT(guesses, testing::ElementsAre(512, 2048, 8192, 32768, 131072, 524288, 524288));
}

// behaviour 3.12 item 2: two small bursts in a row, then half; one of them is not enough
TEST(ReceivePredictor, ShrinksByHalfAfterTwoSmallBursts) {
  ReceivePredictor predictor = begun({.min = 64, .initial = 8192, .max = 65536});
  std::vector<std::size_t> guesses;
  for (int i = 0; i < 6; ++i) {
    burst(predictor, 1);
    guesses.push_back(predictor.guess());
  }
  EXPECT_THAT(guesses, testing::ElementsAre(8192, 4096, 4096, 2048, 2048, 1024));
}

TEST(ReceivePredictor, ForgetsASmallBurstWhenALargerOneFollows) {
  ReceivePredictor predictor = begun({.min = 64, .initial = 8192, .max = 65536});
  for (int i = 0; i < 10; ++i) {
    burst(predictor, 1);
    burst(predictor, 2048);  // a quarter is enough
  }
  EXPECT_EQ(predictor.guess(), 8192U);
}

// behaviour 3.12 items 3 4: what counts is the sum of the burst
TEST(ReceivePredictor, DoesNotShrinkForASmallLastRead) {
  ReceivePredictor predictor = begun({.min = 64, .initial = 8192, .max = 32768});
  for (int i = 0; i < 4; ++i) burst(predictor, 8192 + 1 + 32768);

  EXPECT_EQ(predictor.guess(), 32768U);
}

// behaviour 3.12 items 5 6
TEST(ReceivePredictor, StaysWithinItsBounds) {
  ReceivePredictor predictor = begun({.min = 81, .initial = 500, .max = 9000});
  for (int i = 0; i < 20; ++i) predictor.filled();
  EXPECT_EQ(predictor.guess(), 8192U);
  for (int i = 0; i < 100; ++i) burst(predictor, 1);
  EXPECT_EQ(predictor.guess(), 128U);

  ReceivePredictor fixed = begun({.min = 1000, .initial = 1000, .max = 1000});
  fixed.filled();
  burst(fixed, 0);
  burst(fixed, 0);
  EXPECT_EQ(fixed.guess(), 1024U);
}

TEST(ReceivePredictor, TakesFourBytes) { EXPECT_EQ(sizeof(ReceivePredictor), 4U); }

}  // namespace
}  // namespace millrace
