#include "model/random/stored_config.h"

#include <nlohmann/json.hpp>

#include "model/json_reader.h"

namespace troupe {
namespace {

/// As DeepSeek-V3's config.json has it.
constexpr const char* kFp8 = R"({
  "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
  "weight_block_size": [128, 128]
})";

/// As Kimi K2 Thinking's, but for all linear layers.
constexpr const char* kInt4 = R"({
  "quant_method": "compressed-tensors", "format": "pack-quantized",
  "quantization_status": "compressed", "ignore": ["lm_head"],
  "config_groups": {"group_0": {
    "targets": ["Linear"], "input_activations": null, "output_activations": null,
    "weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32,
                "symmetric": true, "dynamic": false, "actorder": null}
  }}
})";

}  // namespace

std::optional<RandomFormat> parse_random_format(std::string_view name) {
  if (name == "bf16") return RandomFormat::kBf16;
  if (name == "fp8") return RandomFormat::kFp8;
  if (name == "int4") return RandomFormat::kInt4;
  return std::nullopt;
}

Result<std::string> config_in_format(std::string_view json, const std::string& file,
                                     RandomFormat format) {
  auto config = parse_json(json, file);
  if (!config) return config.error();
  if (!config->is_object()) return corrupt(file + " should be a JSON object");
  config->erase("quantization_config");
  if (format != RandomFormat::kBf16)
    (*config)["quantization_config"] =
        nlohmann::json::parse(format == RandomFormat::kFp8 ? kFp8 : kInt4);
  return config->dump(2) + "\n";
}

}  // namespace troupe
