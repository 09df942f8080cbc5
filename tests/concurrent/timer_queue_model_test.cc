// SPDX-License-Identifier: Apache-2.0
// TimerQueue against a std::multimap: random scripts of schedules, cancels, runs and moves of time.
#include "support/log_capture.h"
#include "support/timer_model.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {
namespace {

// C166 C167 C170 C172 I2 I5
RC_GTEST_PROP(TimerQueueModel, BehavesLikeAMultimap, ()) {
  const test::LogCapture quiet("off");
  const auto script = *rc::gen::scale(8.0, rc::gen::arbitrary<std::vector<std::uint8_t>>());

  test::TimerModel model;

  RC_ASSERT(model.play(script) == std::string());
}

// C173: many cancels, so that the heap is rebuilt again and again
RC_GTEST_PROP(TimerQueueModel, BehavesLikeAMultimapWhenMostIsCancelled, ()) {
  const test::LogCapture quiet("off");
  std::vector<std::uint8_t> script;
  const auto choices =
      *rc::gen::container<std::vector<std::uint8_t>>(150, rc::gen::arbitrary<std::uint8_t>());
  for (const std::uint8_t choice : choices) {
    // Twice a timer, twice a cancel of any, and now and then some time.
    script.insert(script.end(), {0, choice, 0, 0, 1, choice, 5, 0, 3, choice, 3,
                                 static_cast<std::uint8_t>(choice * 7)});
    if (choice % 16 == 0) script.insert(script.end(), {4, 3, 7});
  }

  test::TimerModel model;

  RC_ASSERT(model.play(script) == std::string());
}

}  // namespace
}  // namespace millrace
