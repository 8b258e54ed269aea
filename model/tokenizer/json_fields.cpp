#include "model/tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

#include "model/tokenizer/utf8.h"

namespace troupe {

Error field_error(const std::string& field, const std::string& what) {
  return corrupt(std::string(kTokenizerFile) + ": " + field + " " + what);
}

Error unsupported_field(const std::string& field, const std::string& what,
                        std::string_view supported) {
  return invalid_argument(std::string(kTokenizerFile) + ": " + field + " " + what +
                          ", which is not supported; Troupe reads " + std::string(supported));
}

std::string in_quotes(std::string_view text) {
  std::string shown(text.substr(0, 60));
  return "\"" + utf8::repair(shown) + (shown.size() < text.size() ? "..." : "") + "\"";
}

const nlohmann::json& child(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

std::string type_of(const nlohmann::json& component) {
  const nlohmann::json& type = child(component, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

}  // namespace troupe
