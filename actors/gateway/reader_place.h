#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_routes.h"
#include "actors/gateway/found_request.h"
#include "actors/gateway/token_counts.h"

namespace troupe {

/// What a GET says of what its client has of a request that it found.
struct ReaderPlace {
  Route route;  ///< kRequestAnswer or kRequestEvents
  std::string_view path, query, last_event_id;
};

/// Where a stream of it begins: behind the tokens that the client has of each choice (`from`,
/// Last-Event-ID), into `from`, and of a Response behind an event (`starting_after`), into `found`.
/// Leaves `from` unset where no stream is asked for. 400 for what makes no sense.
std::optional<ApiError> read_place(const ReaderPlace& asked, FoundRequest& found,
                                   std::optional<TokenCounts>& from);

}  // namespace troupe
