// SPDX-License-Identifier: Apache-2.0
// ChannelSetup: what a bootstrap does to each channel it makes: options, attributes, handlers.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/channel/channel_option.h>

#include <atomic>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

class AttributeMap;
class Channel;
template <class T>
class AttributeKey;

/// A value; copies are independent.
class MILLRACE_API ChannelSetup {
 public:
  template <class T>
  void option(const ChannelOption<T>& key, T value) {
    setOption(key, OptionValue(std::move(value)));
  }
  template <class T>
  void attribute(const AttributeKey<T>& key, T value) {
    attributes_.push_back([&key, shared = std::make_shared<T>(std::move(value))](auto& map) {
      map.set(key, shared);
    });
  }
  /// A callable that fills the pipeline.
  template <class F>
  requires std::invocable<F&, Channel&>
  void handler(F fill) { fill_ = std::move(fill); }
  /// One handler for all channels; its class says that it may be shared.
  template <class H>
  void handler(std::shared_ptr<H> shared) {
    fill_ = [shared = std::move(shared)](auto& channel) { channel.pipeline().addLast(shared); };
  }

  bool hasHandler() const noexcept { return static_cast<bool>(fill_); }
  /// Options and attributes. The first option that fails ends it.
  Result<void> apply(Channel& channel) const;
  /// The same, but what fails is logged: as a warning the first time, afterwards for debugging.
  void applyOrLog(Channel& channel) const;
  /// What fills the pipeline; may be empty.
  const std::function<void(Channel&)>& filler() const noexcept { return fill_; }

 private:
  void setOption(const OptionKey& key, OptionValue value);

  struct Option {
    const OptionKey* key;
    OptionValue value;
  };
  std::vector<Option> options_;
  std::vector<std::function<void(AttributeMap&)>> attributes_;
  std::function<void(Channel&)> fill_;
  /// Shared by copies, which set up channels of the same kind.
  std::shared_ptr<std::atomic<bool>> hasWarned_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace millrace
