#include "actors/gateway/schema_shape.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kOfNames = {"properties", "patternProperties", "$defs",
                                                      "definitions", "dependentSchemas"};
constexpr std::array<std::string_view, 4> kOfLists = {"anyOf", "oneOf", "allOf", "prefixItems"};
constexpr std::array<std::string_view, 11> kOfOne = {"items",
                                                     "additionalProperties",
                                                     "additionalItems",
                                                     "not",
                                                     "if",
                                                     "then",
                                                     "else",
                                                     "contains",
                                                     "propertyNames",
                                                     "unevaluatedProperties",
                                                     "unevaluatedItems"};
/// Of a name in a path.
constexpr std::size_t kShownBytesMax = 64;

template <class Names>
bool is_in(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string wrong_at(const json& schema, const std::string& path);

std::string wrong_in_list(const json& list, const std::string& path) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (auto wrong = wrong_at(list[i], path + "[" + std::to_string(i) + "]"); !wrong.empty())
      return wrong;
  return {};
}

/// Of a member of a schema.
std::string wrong_in_member(const std::string& name, const json& value, const std::string& path) {
  if (is_in(kOfLists, name)) {
    if (!value.is_array()) return path + " must be a list of schemas.";
    return wrong_in_list(value, path);
  }
  // Older schemas have a list of those of the first items.
  if (name == "items" && value.is_array()) return wrong_in_list(value, path);
  if (is_in(kOfOne, name)) return wrong_at(value, path);
  if (!is_in(kOfNames, name)) return {};
  if (!value.is_object()) return path + " must be an object of schemas.";
  for (const auto& [of, schema] : value.items())
    if (auto wrong = wrong_at(schema, path + "." + of.substr(0, kShownBytesMax)); !wrong.empty())
      return wrong;
  return {};
}

std::string wrong_at(const json& schema, const std::string& path) {
  if (schema.is_boolean()) return {};
  if (!schema.is_object()) return path + " must be an object, or true or false.";
  for (const auto& [name, value] : schema.items())
    if (auto wrong = wrong_in_member(name, value, path + "." + name.substr(0, kShownBytesMax));
        !wrong.empty())
      return wrong;
  return {};
}

}  // namespace

std::string wrong_in_schema(const json& schema) { return wrong_at(schema, {}); }

}  // namespace troupe
