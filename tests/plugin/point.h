// SPDX-License-Identifier: Apache-2.0
// What the test of messages and its plugins both know.
#pragma once

#include <millrace/channel/message.h>

#include <array>
#include <string>

namespace millrace::test {

struct Point {
  int x;
  int y;
};

/// Too large to live inside a Message.
using Many = std::array<std::string, 8>;

/// What a plugin can do.
struct MessageCalls {
  void (*makePoint)(Message& out);
  void (*makeMany)(Message& out);
  void (*makeBytes)(Message& out);
  void (*makeLocal)(Message& out);
  bool (*takePoint)(Message& msg, Point& out);
  bool (*takeMany)(Message& msg, Many& out);
  bool (*takeBytes)(Message& msg, std::string& out);
  bool (*isLocal)(const Message& msg);
};

}  // namespace millrace::test
