// SPDX-License-Identifier: Apache-2.0
// The smallest use of an installed Millrace: a task on a loop tells the library's version.
#include <millrace/millrace.h>

#include <cstdio>

int main() {
  millrace::EventLoopGroup group(1);
  const char* version = group.next().submit([] { return millrace::version(); }).get();
  std::printf("millrace %s\n", version);
  group.shutdownGracefully().sync();
  return 0;
}
