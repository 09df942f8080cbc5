// SPDX-License-Identifier: Apache-2.0
// The smallest use of an installed Millrace: prints the version of the library it runs with.
#include <millrace/base/version.h>

#include <cstdio>

int main() {
  std::printf("millrace %s\n", millrace::version());
  return 0;
}
