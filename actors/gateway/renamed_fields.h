#pragma once

#include <span>
#include <string_view>

#include "actors/gateway/api_error.h"

namespace troupe {

/// What a chat calls a field of another API's request, such as "text.format"; or how an error of it
/// begins.
struct RenamedField {
  std::string_view chat, other;
};

/// An error of a chat with the names that the request which it was made from has.
ApiError with_other_names(ApiError error, std::span<const RenamedField> fields);

/// Replaces every `what` in the message.
void replace_in_message(ApiError& error, std::string_view what, std::string_view by);

}  // namespace troupe
