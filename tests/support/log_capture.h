// SPDX-License-Identifier: Apache-2.0
// LogCapture: collects what is logged in its scope instead of printing it.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/log.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// One at a time per process (sinks nest like scopes). Records may come from any thread; ask from
/// any thread. The old sink comes back at the end, and the filter that MILLRACE_LOG says.
class LogCapture {
 public:
  struct Record {
    LogLevel level;
    std::string layer;
    std::string thread;
    std::string text;
  };

  explicit LogCapture(std::string_view filter = "trace");
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture();

  /// Copies of all so far, oldest first.
  std::vector<Record> records() const;
  std::size_t count(LogLevel level) const;
  /// True if the text of a record has `part` in it.
  bool contains(std::string_view part) const;
  /// Waits until the text of a record has `part` in it; false if that takes longer than `limit`.
  bool awaitRecord(std::string_view part, Duration limit = std::chrono::seconds(30)) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the sink, which may be in use for a moment longer
  LogSink old_;
};

}  // namespace millrace::test
