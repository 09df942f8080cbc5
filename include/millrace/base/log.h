// SPDX-License-Identifier: Apache-2.0
// The log: one line per event, with level, loop and layer, to standard error or to a sink of yours.
//
// MILLRACE_LOG sets the levels: "debug" for all, "warn,loop=debug,sys=off" for some. The default is
// info. Nothing is formatted for a line that nobody wants. Any thread.
#pragma once

#include <millrace/base/export.h>

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace millrace {

enum class LogLevel { trace, debug, info, warn, error, off };

/// "trace", "debug", … for a level.
MILLRACE_API std::string_view logLevelName(LogLevel level) noexcept;

/// What a sink gets. The views are valid for the length of the call.
struct LogRecord {
  LogLevel level;
  std::string_view layer;   ///< "loop", "sys", or what the program named itself
  std::string_view thread;  ///< the name of the loop whose thread writes, or ""
  std::string_view text;
};

/// Gets each record that passed the filter, one at a time. What it throws is ignored; what it logs
/// itself is dropped.
using LogSink = std::function<void(const LogRecord&)>;

/// Replaces the sink and returns the old one; an empty sink stands for standard error.
MILLRACE_API LogSink setLogSink(LogSink sink);
/// Replaces the filter, in the syntax of MILLRACE_LOG. Throws std::invalid_argument for words that
/// it does not know, with the list of those it knows; the filter is then unchanged.
MILLRACE_API void setLogFilter(std::string_view filter);
/// True if a record of this level and layer would reach the sink.
MILLRACE_API bool logEnabled(LogLevel level, std::string_view layer) noexcept;
/// Names the current thread in its records. `name` must live as long as the thread uses it.
MILLRACE_API void setLogThread(const char* name) noexcept;

namespace internal {
MILLRACE_API void writeLog(LogLevel level, std::string_view layer, std::string_view text) noexcept;

inline void appendLog(std::string& line, std::string_view part) { line += part; }
template <class N>
requires std::is_arithmetic_v<N>
void appendLog(std::string& line, N value) {
  if constexpr (std::is_same_v<N, char>) {
    line += value;
  } else if constexpr (std::is_same_v<N, bool>) {
    line += value ? "true" : "false";
  } else {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    line.append(digits, end);
  }
}
}  // namespace internal

/// Writes one record made of `parts` (texts, characters, numbers and truth values) if its level and
/// layer are wanted. Our own layers: "concurrent", "loop", "channel", "transport", "bootstrap", "tls".
template <class... Parts>
void log(LogLevel level, std::string_view layer, const Parts&... parts) {
  if (!logEnabled(level, layer)) return;
  std::string text;
  (internal::appendLog(text, parts), ...);
  internal::writeLog(level, layer, text);
}

}  // namespace millrace
