#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "actors/gateway/item_output.h"

namespace troupe {

/// An answer as OpenAI's Responses API has it.
///
///     response.created, .in_progress
///       output_item.added ─ content_part.added ─ output_text.delta ... ─ .done ─ ... item.done
///     response.completed | .incomplete | .failed
///
/// In a stream that goes on, events are numbered beyond those that told what was skipped, into
/// however many pieces it was cut.
class ResponsesOutput final : public ItemOutput {
 public:
  /// `echo`: what the object repeats of the request, a JSON object.
  ResponsesOutput(std::string_view model, std::string echo, bool stream)
      : ItemOutput(stream), model_(model), echo_(std::move(echo)) {}
  void write(JsonWriter& json, const State& state) const override;

 private:
  void tell_start() override;
  void tell_item() override;
  void tell_more(std::string_view more) override;
  void tell_item_end() override;
  void tell_end(const State& state) override;
  void skip(std::size_t bytes) override { sequence_ += bytes; }

  std::string item_id(std::size_t index) const;
  void write_item(JsonWriter& json, std::size_t index, bool whole) const;
  void write_object(JsonWriter& json, std::string_view status, const State& state) const;
  /// Begins an event with what all have in common.
  JsonWriter event(std::string_view type);
  JsonWriter last_item_event(std::string_view type);
  void tell_part(std::string_view type);
  void tell_object(std::string_view status, std::string_view type, const State& state);

  const std::string_view model_;
  const std::string echo_;
  std::size_t sequence_ = 0;
};

}  // namespace troupe
