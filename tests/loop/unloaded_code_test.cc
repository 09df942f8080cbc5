// SPDX-License-Identifier: Apache-2.0
// Tasks whose code is gone: what ran is never looked at again.
#include "support/loop_test.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <memory>

namespace millrace {
namespace {

TEST(UnloadedCode, OfTasksThatHaveRunIsNotNeeded) {
  auto group = std::make_unique<EventLoopGroup>(1);
  EventLoop& loop = group->next();
  int count = 0;  // the loop's
  void* plugin = ::dlopen(MILLRACE_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << ::dlerror();
  auto* post = reinterpret_cast<void (*)(Executor&, int*)>(::dlsym(plugin, "postFromPlugin"));
  ASSERT_NE(post, nullptr);
  post(loop, &count);
  EXPECT_EQ(loop.submit([&count] { return count; }).get(), 100);

  ::dlclose(plugin);
  for (int i = 0; i < 1000; ++i) loop.execute([&count] { ++count; });  // into the same nodes
  loop.submit([] {}).sync();
  group.reset();

  EXPECT_EQ(count, 1100);
}

}  // namespace
}  // namespace millrace
