// SPDX-License-Identifier: Apache-2.0
// Which files settings are read from, and whether they are still the same.
#pragma once

#include "tls/settings.h"

#include <string>

namespace millrace::tls {

/// Different as soon as one of the files of `settings` is.
std::string marksOfFiles(const Settings& settings);

}  // namespace millrace::tls
