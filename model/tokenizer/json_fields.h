#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

inline constexpr const char* kTokenizerFile = "tokenizer.json";

/// A field of tokenizer.json is wrong: "model.merges should be a list".
Error field_error(const std::string& field, const std::string& what);
/// It asks for something that is not there; `supported` says what is.
Error unsupported_field(const std::string& field, const std::string& what,
                        std::string_view supported);

/// In quotes, cut where it is long.
std::string in_quotes(std::string_view text);

/// The member of that name; null if there is none or `object` is no object.
const nlohmann::json& child(const nlohmann::json& object, const char* key);
/// The string `type` of a component; empty if there is none.
std::string type_of(const nlohmann::json& component);

}  // namespace troupe
