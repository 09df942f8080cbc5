// SPDX-License-Identifier: Apache-2.0
// Messages between libraries that were loaded separately, and built by different compilers.
#include "plugin/point.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

using test::Many;
using test::MessageCalls;
using test::Point;

struct Local {
  int value;
};

/// Loaded for the rest of the test.
class Plugin {
 public:
  explicit Plugin(const std::string& path) : path_(path) {
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << ::dlerror();
    if (library_ == nullptr) return;
    auto* get = reinterpret_cast<const void* (*)()>(::dlsym(library_, "messageCalls"));
    calls_ = static_cast<const MessageCalls*>(get());
  }
  Plugin(Plugin&& other) noexcept
      : path_(other.path_),
        library_(std::exchange(other.library_, nullptr)),
        calls_(other.calls_) {}
  Plugin& operator=(Plugin&&) = delete;
  ~Plugin() {
    if (library_ != nullptr) ::dlclose(library_);
  }
  const MessageCalls& operator*() const { return *calls_; }
  const MessageCalls* operator->() const { return calls_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* library_ = nullptr;
  const MessageCalls* calls_ = nullptr;
};

std::vector<Plugin> loadAll() {
  std::vector<Plugin> plugins;
  std::istringstream paths(MILLRACE_MESSAGE_PLUGINS);
  for (std::string path; std::getline(paths, path, ':');) plugins.emplace_back(path);
  return plugins;
}

// Two of each compiler that is there.
TEST(MessageOfAPlugin, IsUnderstoodByEveryOtherAndByTheProgram) {
  const std::vector<Plugin> plugins = loadAll();
  ASSERT_GE(plugins.size(), 2U);
  for (const Plugin& from : plugins) {
    for (const Plugin& to : plugins) {
      SCOPED_TRACE(from.path() + " -> " + to.path());
      Message msg;
      Point point{};
      Many many;
      std::string text;

      from->makePoint(msg);
      EXPECT_TRUE(msg.is<Point>());
      EXPECT_FALSE(msg.is<Many>());
      EXPECT_FALSE(to->takeBytes(msg, text));
      EXPECT_TRUE(to->takePoint(msg, point));
      EXPECT_EQ(point.y, 4);
      EXPECT_FALSE(msg);
      from->makeMany(msg);
      EXPECT_TRUE(msg.is<Many>());
      EXPECT_TRUE(to->takeMany(msg, many));
      EXPECT_EQ(many[0], "first");
      from->makeBytes(msg);
      EXPECT_TRUE(msg.isByteBuf());
      EXPECT_TRUE(to->takeBytes(msg, text));
      EXPECT_EQ(text, "bytes");
    }
  }
}

TEST(MessageOfAPlugin, IsNotMistakenForALocalTypeOfTheSameName) {
  const std::vector<Plugin> plugins = loadAll();
  for (const Plugin& from : plugins) {
    Message msg;
    from->makeLocal(msg);
    EXPECT_FALSE(msg.is<Local>());
    for (const Plugin& to : plugins) {
      EXPECT_EQ(to->isLocal(msg), &to == &from) << from.path() << " -> " << to.path();
    }
    EXPECT_FALSE(from->isLocal(Message(Local{1})));
  }
}

TEST(MessageOfAPlugin, ComesFromTheProgramAsWell) {
  for (const Plugin& to : loadAll()) {
    Message msg = Point{7, 8};
    Point point{};
    EXPECT_TRUE(to->takePoint(msg, point));
    EXPECT_EQ(point.x, 7);
    msg = ByteBuf::of("hello");
    std::string text;
    EXPECT_TRUE(to->takeBytes(msg, text));
    EXPECT_EQ(text, "hello");
  }
}

}  // namespace
}  // namespace millrace
