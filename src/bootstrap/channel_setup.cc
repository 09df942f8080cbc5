// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/attribute_map.h>
#include <millrace/base/log.h>
#include <millrace/bootstrap/channel_setup.h>
#include <millrace/channel/channel.h>

namespace millrace {

// The last value given for an option counts.
void ChannelSetup::setOption(const OptionKey& key, OptionValue value) {
  for (Option& each : options_) {
    if (each.key != &key) continue;
    each.value = std::move(value);
    return;
  }
  options_.push_back({&key, std::move(value)});
}

Result<void> ChannelSetup::apply(Channel& channel) const {
  for (const Option& each : options_) {
    if (Result<void> set = channel.applyOption(*each.key, each.value); !set) return set;
  }
  for (const auto& each : attributes_) each(channel.attributes());
  return {};
}

void ChannelSetup::applyOrLog(Channel& channel) const {
  bool hasFailed = false;
  for (const Option& each : options_) {
    if (Result<void> set = channel.applyOption(*each.key, each.value); !set) {
      hasFailed = true;
      log(hasWarned_->load() ? LogLevel::debug : LogLevel::warn, "bootstrap", channel.describe(),
          ": ", set.error().message());
    }
  }
  if (hasFailed) hasWarned_->store(true);
  for (const auto& each : attributes_) each(channel.attributes());
}

}  // namespace millrace
