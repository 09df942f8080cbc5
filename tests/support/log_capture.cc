// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

namespace millrace::test {

struct LogCapture::State {
  mutable std::mutex mutex;
  std::condition_variable more;
  std::vector<Record> records;  // guarded by mutex
};

LogCapture::LogCapture(std::string_view filter) : state_(std::make_shared<State>()) {
  setLogFilter(filter);
  old_ = setLogSink([state = state_](const LogRecord& record) {
    std::lock_guard lock(state->mutex);
    state->records.push_back({record.level, std::string(record.layer), std::string(record.thread),
                              std::string(record.text)});
    state->more.notify_all();
  });
}

LogCapture::~LogCapture() {
  setLogSink(std::move(old_));
  const char* usual = std::getenv("MILLRACE_LOG");
  try {
    setLogFilter(usual != nullptr ? usual : "info");
  } catch (const std::invalid_argument&) {
    setLogFilter("info");
  }
}

std::vector<LogCapture::Record> LogCapture::records() const {
  std::lock_guard lock(state_->mutex);
  return state_->records;
}

std::size_t LogCapture::count(LogLevel level) const {
  const auto all = records();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [level](const Record& record) { return record.level == level; }));
}

bool LogCapture::contains(std::string_view part) const {
  const auto all = records();
  return std::any_of(all.begin(), all.end(), [part](const Record& record) {
    return record.text.find(part) != std::string::npos;
  });
}

bool LogCapture::awaitRecord(std::string_view part, Duration limit) const {
  std::unique_lock lock(state_->mutex);
  return state_->more.wait_for(lock, limit, [this, part] {
    return std::any_of(
        state_->records.begin(), state_->records.end(),
        [part](const Record& record) { return record.text.find(part) != std::string::npos; });
  });
}

}  // namespace millrace::test
