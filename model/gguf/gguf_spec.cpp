#include "model/gguf/gguf_spec.h"

#include <nlohmann/json.hpp>

#include "model/spec/read_spec.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;
using kernels::RopePairs;

/// Families as llama.cpp names them, which are as transformers does. Its converter moves the rows
/// of Llama's queries and keys so that neighbours turn together.
struct Family {
  const char* name;
  const char* published;
  RopePairs pairs;
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", RopePairs::kInterleaved},
    {"qwen2", "Qwen2ForCausalLM", RopePairs::kHalves},
    {"qwen3", "Qwen3ForCausalLM", RopePairs::kHalves},
};

struct Key {
  const char* gguf;  ///< after "llama." and the like
  const char* config;
};
constexpr Key kKeys[] = {
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
};
/// What comes later counts.
constexpr Key kScalingKeys[] = {
    {"rope.scale_linear", "factor"},  // of old files
    {"rope.scaling.type", "rope_type"},
    {"rope.scaling.factor", "factor"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
    {"rope.scaling.yarn_beta_fast", "beta_fast"},
    {"rope.scaling.yarn_beta_slow", "beta_slow"},
};
/// What would change the answers, and is not supported.
constexpr const char* kRefused[] = {"expert_count", "attention.sliding_window",
                                    "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                                    "rope.scaling.yarn_ext_factor"};
constexpr const char* kEndTokens[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};

struct Name {
  WeightRole role;
  const char* name;
};
constexpr Name kEndNames[] = {
    {WeightRole::kEmbedding, "token_embd.weight"},
    {WeightRole::kFinalNorm, "output_norm.weight"},
    {WeightRole::kHead, "output.weight"},
};
constexpr Name kLayerNames[] = {
    {WeightRole::kInputNorm, "attn_norm.weight"},
    {WeightRole::kQ, "attn_q.weight"},
    {WeightRole::kK, "attn_k.weight"},
    {WeightRole::kV, "attn_v.weight"},
    {WeightRole::kQBias, "attn_q.bias"},
    {WeightRole::kKBias, "attn_k.bias"},
    {WeightRole::kVBias, "attn_v.bias"},
    {WeightRole::kQNorm, "attn_q_norm.weight"},
    {WeightRole::kKNorm, "attn_k_norm.weight"},
    {WeightRole::kO, "attn_output.weight"},
    {WeightRole::kOBias, "attn_output.bias"},
    {WeightRole::kPostNorm, "ffn_norm.weight"},
    {WeightRole::kGate, "ffn_gate.weight"},
    {WeightRole::kUp, "ffn_up.weight"},
    {WeightRole::kDown, "ffn_down.weight"},
};

void rename(std::vector<WeightSpec>& weights, std::span<const Name> names,
            const std::string& prefix) {
  for (WeightSpec& weight : weights)
    for (const Name& name : names)
      if (name.role == weight.role) weight.name = prefix + name.name;
}

class Translator {
 public:
  Translator(const GgufHeader& header, const std::string& file) : header_(header), file_(file) {}

  Result<ModelSpec> run() {
    if (auto status = find_family(); !status) return status.error();
    if (auto status = refuse(); !status) return status.error();
    const Json config = make_config();
    auto spec = parse_model_spec(config.dump(-1, ' ', true, Json::error_handler_t::replace),
                                 file_ + " (its metadata, named as in config.json)");
    if (!spec) return spec;
    name_tensors(*spec);
    if (auto status = settle_rope(spec->rope); !status) return status.error();
    return spec;
  }

 private:
  Error wrong(const std::string& what) const { return corrupt(file_ + ": " + what); }
  std::string key(const char* name) const { return std::string(family_->name) + "." + name; }
  bool has_tensor(const char* name) const {
    return header_.tensors.contains(std::string_view(name));
  }

  Status find_family() {
    const auto* told = header_.get<std::string>("general.architecture");
    if (!told) return wrong("general.architecture should name the model's family");
    std::string names;
    for (const Family& family : kFamilies) {
      if (*told == family.name) family_ = &family;
      names += (names.empty() ? "" : ", ") + std::string(family.name);
    }
    if (!family_)
      return wrong("general.architecture is \"" + told->substr(0, 64) +
                   "\"; the families served from GGUF are " + names);
    const auto* parts = header_.get<std::int64_t>("split.count");
    if (parts && *parts > 1)
      return wrong("is one of " + std::to_string(*parts) +
                   " parts; join them first with llama-gguf-split --merge");
    return {};
  }

  /// Zero and one are what these mean when they are off.
  Status refuse() const {
    for (const char* name : kRefused) {
      const auto found = header_.metadata.find(key(name));
      if (found == header_.metadata.end()) continue;
      const auto* whole = std::get_if<std::int64_t>(&found->second);
      const auto* real = std::get_if<double>(&found->second);
      if ((whole && *whole == 0) || (real && (*real == 0.0 || *real == 1.0))) continue;
      return wrong(found->first + " should be absent: what it asks for is not supported");
    }
    const auto* keys = header_.get<std::int64_t>(key("attention.key_length"));
    const auto* values = header_.get<std::int64_t>(key("attention.value_length"));
    if (keys && values && *keys != *values)
      return wrong(key("attention.value_length") + " should be as attention.key_length, " +
                   std::to_string(*keys));
    return {};
  }

  void copy(std::span<const Key> keys, Json& to) const {
    for (const Key& one : keys) {
      const auto found = header_.metadata.find(key(one.gguf));
      if (found != header_.metadata.end())
        to[one.config] = std::visit([](const auto& value) { return Json(value); }, found->second);
    }
  }

  Json make_config() const {
    Json config = {{"model_type", family_->name}, {"architectures", {family_->published}}};
    copy(kKeys, config);
    Json scaling = Json::object();
    copy(kScalingKeys, scaling);
    // A factor of zero is none; without a type it is linear.
    if (scaling.value("factor", Json(1)) == 0) scaling.erase("factor");
    if (scaling.contains("factor")) scaling.emplace("rope_type", "linear");
    if (scaling.value("rope_type", Json("none")) != "none") config["rope_scaling"] = scaling;
    const auto embedding = header_.tensors.find(std::string_view("token_embd.weight"));
    if (embedding != header_.tensors.end()) config["vocab_size"] = embedding->second.shape.front();
    config["tie_word_embeddings"] = !has_tensor("output.weight");
    config["attention_bias"] = has_tensor("blk.0.attn_q.bias");
    for (const char* name : kEndTokens)
      // All ones, or another vocabulary's: none.
      if (const auto* token = header_.get<std::int64_t>(name); token && *token <= INT32_MAX)
        config["eos_token_id"].push_back(*token);
    return config;
  }

  void name_tensors(ModelSpec& spec) const {
    rename(spec.first, kEndNames, "");
    rename(spec.last, kEndNames, "");
    if (!has_tensor("output.weight")) spec.last.back().name = spec.first.front().name;
    for (std::size_t i = 0; i < spec.layers.size(); ++i)
      rename(spec.layers[i].weights, kLayerNames, "blk." + std::to_string(i) + ".");
  }

  Status settle_rope(RopeSpec& rope) const {
    rope.pairs = family_->pairs;
    const auto found = header_.metadata.find(key("rope.dimension_count"));
    if (found == header_.metadata.end()) return {};
    const auto* dim = std::get_if<std::int64_t>(&found->second);
    if (!dim || *dim < 2 || *dim > rope.dim || *dim % 2 != 0)
      return wrong(found->first + " should be an even number up to a head's size, " +
                   std::to_string(rope.dim));
    rope.dim = static_cast<std::int32_t>(*dim);
    return {};
  }

  const GgufHeader& header_;
  const std::string& file_;
  const Family* family_ = nullptr;
};

}  // namespace

Result<ModelSpec> gguf_spec(const GgufHeader& header, const std::string& file) {
  return Translator(header, file).run();
}

}  // namespace troupe
