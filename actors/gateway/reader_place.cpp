#include "actors/gateway/reader_place.h"

#include <charconv>
#include <cstdint>

#include "actors/gateway/http_target.h"

namespace troupe {
namespace {

constexpr const char *kStream = "stream", *kAfter = "starting_after", *kFrom = "from";

std::optional<ApiError> read_after(const ReaderPlace& asked, ApiRequest& request) {
  const auto text = query_value(asked.query, kAfter);
  if (!text) return std::nullopt;
  if (!request.response)
    return bad_field(kAfter,
                     "starting_after is of Responses, whose events have numbers; here ask with "
                     "from=N behind N tokens.");
  if (asked.route != Route::kRequestEvents)
    return bad_field(kAfter, "starting_after makes sense only with stream=true.");
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, number);
  if (read.ec != std::errc() || read.ptr != end)
    return bad_field(kAfter,
                     "starting_after must be the sequence_number of an event that you have, not '" +
                         text->substr(0, 64) + "'.");
  request.response->after = number;
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> read_place(const ReaderPlace& asked, FoundRequest& found,
                                   std::optional<TokenCounts>& from) {
  for (const char* name : {kStream, kAfter, kFrom})
    if (query_count(asked.query, name) > 1)
      return bad_field(name, std::string(name) + " is there more than once.");
  const auto stream = query_value(asked.query, kStream);
  if (stream && asks_for_response(asked.path) && !parse_switch(*stream))
    return bad_field(kStream, "stream must be true or false.");
  if (auto error = read_after(asked, found.request)) return error;
  if (asked.route != Route::kRequestEvents) return std::nullopt;
  from.emplace(found.choices(), 0);
  const auto count = query_value(asked.query, kFrom);
  const bool goes_on =
      !asked.last_event_id.empty();  // an EventSource, which keeps its first `from`
  if (!count && !goes_on) return std::nullopt;
  auto counts =
      parse_token_counts(goes_on ? asked.last_event_id : std::string_view(*count), from->size());
  const char* const name = goes_on ? "Last-Event-ID" : kFrom;
  if (!counts)
    return bad_field(name, std::string(name) +
                               " must be the number of tokens that you have of each choice: one "
                               "for all, " +
                               std::to_string(from->size()) +
                               " with commas between them, or pairs as 0:17,1:12.");
  from = std::move(*counts);
  return std::nullopt;
}

}  // namespace troupe
