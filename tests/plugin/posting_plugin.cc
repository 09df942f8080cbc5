// SPDX-License-Identifier: Apache-2.0
// A library that posts tasks and may be unloaded when they have run: their code goes with it.
#include <millrace/concurrent/executor.h>

extern "C" [[gnu::visibility("default")]] void postFromPlugin(millrace::Executor& executor,
                                                              int* count) {
  for (int i = 0; i < 100; ++i) executor.execute([count] { ++*count; });
}
