#include "model/generation_config.h"

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

/// A whole number, which may be written as 50.0.
std::optional<std::int32_t> whole(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::trunc(number) || std::abs(number) > limits::kDimensionMax) return std::nullopt;
  return static_cast<std::int32_t>(number);
}

class Reader {
 public:
  Reader(const Json& object, const std::string& file, std::vector<std::string>& left_out)
      : object_(object), file_(file), left_out_(left_out) {}

  std::optional<float> number(const char* key) {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    const double found = value->is_number() ? value->get<double>() : NAN;
    if (std::abs(found) <= FLT_MAX) return static_cast<float>(found);
    leave_out(key, *value, "a number");
    return std::nullopt;
  }

  std::optional<std::int32_t> integer(const char* key) {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    const auto found = whole(*value);
    if (!found) leave_out(key, *value, "a whole number");
    return found;
  }

  bool boolean_or(const char* key, bool fallback) {
    const Json* value = find(key);
    if (!value) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    leave_out(key, *value, "true or false");
    return fallback;
  }

  /// One, or a list of them, of which those that are none are left out.
  std::vector<TokenId> tokens(const char* key) {
    const Json* value = find(key);
    if (!value) return {};
    std::vector<TokenId> ids;
    for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
      const auto id = whole(item);
      if (id && *id >= 0)
        ids.push_back(*id);
      else
        leave_out(key, item, "the id of a token, or a list of them");
    }
    return ids;
  }

 private:
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void leave_out(const char* key, const Json& value, const char* expected) {
    left_out_.push_back(
        file_ + ": " + key + " is left out; it should be " + expected + ", but is " +
        value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64) + ".");
  }

  const Json& object_;
  const std::string& file_;
  std::vector<std::string>& left_out_;
};

}  // namespace

GenerationConfig parse_generation_config(std::string_view json, const std::string& file) {
  GenerationConfig config;
  const auto parsed = parse_json(json, file);
  if (!parsed || !parsed->is_object()) {
    config.left_out.push_back(
        (parsed ? file + " should be a JSON object" : parsed.error().message) +
        "; nothing of it is used.");
    return config;
  }
  Reader in(*parsed, file, config.left_out);
  config.temperature = in.number("temperature");
  config.top_p = in.number("top_p");
  config.min_p = in.number("min_p");
  config.repetition_penalty = in.number("repetition_penalty");
  config.top_k = in.integer("top_k");
  if (!in.boolean_or("do_sample", true)) config.temperature = 0.0f;
  config.eos_token_ids = in.tokens("eos_token_id");
  return config;
}

Result<GenerationConfig> load_generation_config(const std::string& folder) {
  const std::string file = folder + "/generation_config.json";
  auto text = read_text_file(file, limits::kConfigBytesMax);
  if (!text && text.error().code == ErrorCode::kNotFound) return GenerationConfig{};
  if (!text) return text.error();
  return parse_generation_config(*text, file);
}

}  // namespace troupe
