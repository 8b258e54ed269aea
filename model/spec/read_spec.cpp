#include "model/spec/read_spec.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_spec.h"
#include "model/model_path.h"
#include "model/spec/architectures.h"
#include "runtime/edit_distance.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

struct Architecture {
  const char* model_type;
  const char* published;  ///< in `architectures`
  Status (*read)(SpecBuilder&);
};

constexpr Architecture kArchitectures[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek},
    {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek},
    {"kimi_k2", "DeepseekV3ForCausalLM", read_deepseek},
    {"llama", "LlamaForCausalLM", read_llama},
    {"qwen2", "Qwen2ForCausalLM", read_qwen},
    {"qwen3", "Qwen3ForCausalLM", read_qwen},
    {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen},
    {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe},
    {"gpt_oss", "GptOssForCausalLM", read_gpt_oss},
};

/// Edits within which a name is taken for a neighbour of another, rather than for another family.
constexpr std::size_t kNearEdits = 2;

std::string known_in_words(std::string_view asked) {
  const auto* nearest = std::min_element(std::begin(kArchitectures), std::end(kArchitectures),
                                         [&](const Architecture& a, const Architecture& b) {
                                           return edit_distance(asked, a.model_type) <
                                                  edit_distance(asked, b.model_type);
                                         });
  std::string names;
  for (const Architecture& a : kArchitectures)
    names += (names.empty() ? "" : ", ") + std::string(a.model_type);
  names = "one of those served (" + names + ")";
  if (edit_distance(asked, nearest->model_type) > kNearEdits) return names;
  return names + ", of which \"" + nearest->model_type + "\" is the nearest";
}

/// By model_type; a type of somebody's own by the class that it names.
const Architecture* find_architecture(JsonReader& in) {
  const std::string type = in.string("model_type");
  const auto classes = in.strings("architectures");
  if (!in.ok()) return nullptr;
  if (type == "deepseek_v32") {
    in.fail("model_type", "another one, since sparse attention is not supported yet");
    return nullptr;
  }
  const Architecture* found = nullptr;
  for (const Architecture& a : kArchitectures)
    if (type == a.model_type) found = &a;
  if (found && !classes.empty() && classes.front() != found->published) {
    in.fail("architectures", std::string("[\"") + found->published + "\"], as model_type says");
    return nullptr;
  }
  for (const Architecture& a : kArchitectures)
    if (!found && !classes.empty() && classes.front() == a.published) found = &a;
  if (!found) in.fail("model_type", known_in_words(type.substr(0, 64)));
  return found;
}

}  // namespace

Result<ModelSpec> parse_model_spec(std::string_view json, const std::string& file) {
  auto parsed = parse_json(json, file);
  if (!parsed) return parsed.error();
  JsonReader in(*parsed, file);
  if (!in.ok()) return in.status().error();
  const Architecture* architecture = find_architecture(in);
  if (!architecture) return in.status().error();
  const nlohmann::json* quantized = in.find("quantization_config");
  if (!quantized) quantized = in.find("compression_config");  // as compressed-tensors once wrote it
  const auto quantization = Quantization::parse(quantized, file);
  if (!quantization) return quantization.error();
  SpecBuilder b{in, file, *quantization, {}};
  b.spec.architecture = architecture->model_type;
  b.spec.forms = quantization->forms();
  if (auto status = architecture->read(b); !status) return status.error();
  return std::move(b.spec);
}

Result<std::string> read_config(const std::string& folder) {
  const std::string file = folder + "/config.json";
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored) &&
      std::filesystem::symlink_status(file, ignored).type() ==
          std::filesystem::file_type::not_found)
    return not_found(folder +
                     " is no model's folder: it has neither a config.json nor a GGUF file" +
                     pull_advice(folder) + ".");
  return read_text_file(file, limits::kConfigBytesMax);
}

Result<ModelSpec> load_model_spec(const std::string& folder) {
  const auto gguf = find_gguf(folder);
  if (!gguf) return gguf.error();
  if (*gguf) {
    const auto opened = open_gguf(**gguf);
    return opened ? gguf_spec(opened->header, **gguf) : opened.error();
  }
  auto text = read_config(folder);
  if (!text) return text.error();
  return parse_model_spec(*text, folder + "/config.json");
}

}  // namespace troupe
