#pragma once

#include <string>
#include <string_view>

#include "actors/gateway/item_output.h"

namespace troupe {

/// An answer as Anthropic's Messages API has it: a message of content blocks.
///
///     message_start, ping
///       content_block_start ─ content_block_delta ... ─ content_block_stop
///     message_delta, message_stop  |  error
class MessagesOutput final : public ItemOutput {
 public:
  MessagesOutput(std::string_view model, bool stream) : ItemOutput(stream), model_(model) {}
  void write(JsonWriter& json, const State& state) const override;

 private:
  void tell_start() override;
  void tell_item() override;
  void tell_more(std::string_view more) override;
  void tell_item_end() override;
  void tell_end(const State& state) override;

  void write_block(JsonWriter& json, const Item& item, bool whole) const;
  void write_stop(JsonWriter& json, const State& state) const;
  void write_usage(JsonWriter& json) const;
  /// Begins an event of the last block.
  JsonWriter block_event(std::string_view type) const;

  const std::string_view model_;
};

}  // namespace troupe
