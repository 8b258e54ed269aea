#include "model/chat/text_arguments.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using Json = nlohmann::json;

const Json& member_of(const Json& object, std::string_view name) {
  static const Json kNone;
  const auto at = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && at != object.end() ? *at : kNone;
}

bool is_string(const Json& value) { return value.is_string(); }

class TextSchemas {
 public:
  explicit TextSchemas(const Json& root) : root_(root) {}

  /// Whether a value that the schema takes can be nothing but a text.
  bool has(const Json& schema, int depth = 0) {
    constexpr int kDepthMax = 100;
    if (depth > kDepthMax) return false;
    // One that is met within itself says nothing.
    const auto [at, added] = known_.try_emplace(&schema, false);
    if (added) at->second = looks_so(schema, depth);
    return at->second;
  }

 private:
  bool looks_so(const Json& schema, int depth) {
    const auto text = [&](const Json& one) { return has(one, depth + 1); };
    const auto all = [](const Json& list, const auto& test) {
      return list.is_array() && !list.empty() && std::ranges::all_of(list, test);
    };
    const Json& both = member_of(schema, "allOf");
    return member_of(schema, "type") == "string" || is_string(member_of(schema, "const")) ||
           all(member_of(schema, "enum"), is_string) || text(target(member_of(schema, "$ref"))) ||
           all(member_of(schema, "anyOf"), text) || all(member_of(schema, "oneOf"), text) ||
           (both.is_array() && std::ranges::any_of(both, text));
  }

  /// What a pointer within the document leads to, through objects with plain names.
  const Json& target(const Json& reference) const {
    constexpr std::string_view kHere = "#/";
    static const Json kNone;
    if (!reference.is_string()) return kNone;
    std::string_view rest = reference.get_ref<const std::string&>();
    if (!rest.starts_with(kHere)) return kNone;
    const Json* at = &root_;
    for (rest.remove_prefix(1); !rest.empty();) {
      const std::size_t end = std::min(rest.find('/', 1), rest.size());
      at = &member_of(*at, rest.substr(1, end - 1));
      rest.remove_prefix(end);
    }
    return *at;
  }

  const Json& root_;
  std::map<const Json*, bool> known_;
};

}  // namespace

std::set<std::string> text_arguments(std::string_view schema) {
  const Json root = Json::parse(schema, nullptr, false);
  TextSchemas texts(root);
  std::set<std::string> out;
  const Json& members = member_of(root, "properties");
  if (!members.is_object()) return out;
  for (const auto& [name, value] : members.items())
    if (texts.has(value)) out.insert(name);
  return out;
}

}  // namespace troupe
