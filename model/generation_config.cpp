#include "model/generation_config.h"

#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {

Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& file) {
  auto parsed = parse_json(json, file);
  if (!parsed) return parsed.error();
  JsonReader in(*parsed, file);
  if (!in.ok()) return in.status().error();

  GenerationConfig config;
  auto number = [&](const char* key, double min, double max) -> std::optional<float> {
    if (!in.has(key)) return std::nullopt;
    return static_cast<float>(in.number(key, min, max));
  };
  config.temperature = number("temperature", 0.0, 100.0);
  config.top_p = number("top_p", 1e-9, 1.0);
  config.min_p = number("min_p", 0.0, 1.0);
  config.repetition_penalty = number("repetition_penalty", 1e-6, 1e6);
  if (in.has("top_k")) config.top_k = in.int32("top_k", 0, limits::kDimensionMax);
  if (!in.boolean_or("do_sample", true)) config.temperature = 0.0f;
  config.eos_token_ids = in.ints("eos_token_id", 0, limits::kDimensionMax);
  if (!in.ok()) return in.status().error();
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
