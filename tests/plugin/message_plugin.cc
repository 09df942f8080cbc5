// SPDX-License-Identifier: Apache-2.0
// A library that makes messages and looks into those of others. Built several times, by each of our
// compilers; every copy has its own tables and type information.
#include "plugin/point.h"

#include <utility>

namespace millrace::test {

namespace {

/// Every copy has one of this name, and none of them is the same type.
struct Local {
  int value;
};

template <class T>
bool takeOut(Message& msg, T& out) {
  if (!msg.is<T>()) return false;
  out = msg.take<T>();
  return true;
}

const MessageCalls kCalls = {
    [](Message& out) {
      out = Point{3, 4};
    },
    [](Message& out) {
      out = Many{"first", "a text that is too long for a string's own memory"};
    },
    [](Message& out) { out = ByteBuf::of("bytes"); },
    [](Message& out) { out = Local{5}; },
    [](Message& msg, Point& out) { return takeOut(msg, out); },
    [](Message& msg, Many& out) { return takeOut(msg, out); },
    [](Message& msg, std::string& out) {
      ByteBuf bytes;
      if (!takeOut(msg, bytes)) return false;
      out = bytes.toString();
      return true;
    },
    [](const Message& msg) { return msg.is<Local>(); },
};

}  // namespace

}  // namespace millrace::test

extern "C" [[gnu::visibility("default")]] const void* messageCalls() {
  return &millrace::test::kCalls;
}
