#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/answer_logprobs.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/item_output.h"

namespace troupe {

/// An answer as OpenAI's Responses API has it.
///
///     response.created, .in_progress
///       output_item.added ─ content_part.added ─ output_text.delta ... ─ .done ─ ... item.done
///     response.completed | .incomplete | .failed
///
/// A token's text is an event's, so that all streams of one answer have the same events with the
/// same numbers, wherever they begin.
class ResponsesOutput final : public ItemOutput {
 public:
  /// `logprobs`: of the tokens of messages, so many alternatives are shown; -1: nothing is.
  ResponsesOutput(std::string_view model, const ApiRequest::Response& response,
                  const TokenNames& names, std::int32_t logprobs, bool stream)
      : ItemOutput(stream, logprobs),
        model_(model),
        echo_(response.echo),
        after_(response.after),
        names_(names) {}
  void write(JsonWriter& json, const State& state) const override;

 private:
  void tell_start() override;
  void tell_item() override;
  void tell_more(std::string_view more) override;
  void tell_item_end() override;
  void tell_end(const State& state) override;

  std::string item_id(std::size_t index) const;
  void write_item(JsonWriter& json, std::size_t index, bool whole) const;
  void write_object(JsonWriter& json, std::string_view status, const State& state) const;
  /// Begins an event with what all have in common.
  JsonWriter event(std::string_view type);
  JsonWriter last_item_event(std::string_view type);
  void tell_event(std::string_view type, JsonWriter json);
  void write_part(JsonWriter& json, const Item& item, std::string_view text) const;
  void tell_part(std::string_view type);
  void tell_object(std::string_view status, std::string_view type, const State& state);

  const std::string_view model_;
  const std::string echo_;
  const std::optional<std::uint64_t> after_;  // No event up to this number is told.
  const TokenNames& names_;
  std::uint64_t sequence_ = 0;
};

}  // namespace troupe
