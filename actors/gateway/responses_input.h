#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Fetches an item of an earlier response; an error of status 400 has a reason for a message.
using RecallItem =
    std::function<std::optional<ApiError>(const std::string& id, nlohmann::json& item)>;

/// Reads `input` of a Response: a text, or items (message, function_call, function_call_output,
/// reasoning, item_reference). What comes back is a chat's messages, a JSON list. Calls and the
/// message before them are one message, with the thought that came before it. `refusal`: why an
/// item that is named cannot be had, where that is not the client's fault.
std::string read_response_input(FieldReader& fields, const RecallItem& recall,
                                std::optional<ApiError>& refusal);

/// One JSON list with what is in both.
std::string join_json_lists(std::string_view first, std::string_view second);

}  // namespace troupe
