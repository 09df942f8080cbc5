// SPDX-License-Identifier: Apache-2.0
// MILLRACE_API marks what the shared library exports; everything else is hidden.
#pragma once

#if defined(__GNUC__)
#define MILLRACE_API [[gnu::visibility("default")]]
#else
#define MILLRACE_API
#endif
