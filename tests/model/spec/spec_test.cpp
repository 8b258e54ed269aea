// What config.json and generation_config.json may hold, and how each defect is told.

#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/generation_config.h"
#include "model/spec/read_spec.h"
#include "runtime/limits.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using nlohmann::json;

json config_of(const std::string& golden) {
  std::ifstream in(testing::source_path("tests/golden/" + golden + "/config.json"));
  return json::parse(in);
}
json v3_config() { return config_of("v3"); }

std::string error_of(const std::string& text) {
  const auto result = parse_model_spec(text, "config.json");
  return result ? "" : result.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const WeightSpec* find(const std::vector<WeightSpec>& weights, WeightRole role) {
  for (const auto& w : weights)
    if (w.role == role) return &w;
  return nullptr;
}

TEST_CASE("DeepSeek-V3's config is read") {
  const auto spec = parse_model_spec(v3_config().dump(), "config.json");
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "deepseek_v3");
  REQUIRE(spec->num_layers() == 4);
  CHECK(spec->mtp_layers == 1);
  CHECK_FALSE(spec->layers[0].has_experts());
  const LayerSpec& layer = spec->layers[1];
  CHECK(layer.has_experts());
  CHECK(layer.inner == 48);
  CHECK(spec->num_experts() == 16);
  CHECK(spec->top_k() == 4);
  CHECK(layer.attention.kind == AttentionKind::kMla);
  CHECK(layer.attention.q_lora == 48);
  CHECK(layer.attention.qk_dim == 48);
  CHECK(layer.kv == std::vector<KvPoolSpec>{{48}});
  CHECK(layer.experts.gate.method == kernels::GateMethod::kNoauxTc);
  CHECK(layer.experts.gate.scoring == kernels::GateScoring::kSigmoid);
  CHECK(spec->eos_token_ids == std::vector<TokenId>{1});
  CHECK(spec->rope.scaling == RopeSpec::Scaling::kYarn);
  CHECK(spec->rope.pairs == kernels::RopePairs::kInterleaved);
  CHECK(spec->rope.factor == 40);
  CHECK(spec->rope.original_positions == 64);
  // 1 / sqrt(48), times (0.1 ln 40 + 1)^2.
  CHECK(layer.attention.scale == doctest::Approx(0.270468));
  CHECK(spec->rope.magnitude == 1.0);
  const WeightSpec* down = find(layer.expert, WeightRole::kExpertDown);
  REQUIRE(down);
  CHECK(name_of(*down, 7) == "model.layers.1.mlp.experts.7.down_proj.weight");
  CHECK(find(layer.weights, WeightRole::kO)->slices == 4);
  CHECK(find(layer.weights, WeightRole::kDown)->slices == 8);
  CHECK(down->slices == 1);
}

TEST_CASE("every family says what its layers are made of") {
  const auto read = [](const char* golden) {
    auto spec = parse_model_spec(config_of(golden).dump(), golden);
    if (!spec) FAIL(spec.error().message);
    return std::move(*spec);
  };
  SUBCASE("qwen2: biases, a tied head") {
    const auto spec = read("qwen2");
    CHECK(find(spec.layers[0].weights, WeightRole::kQBias));
    CHECK_FALSE(find(spec.layers[0].weights, WeightRole::kOBias));
    CHECK(spec.last.back().name == "model.embed_tokens.weight");
    CHECK(spec.layers[0].attention.window == 0);
    CHECK(spec.layers[0].kv == std::vector<KvPoolSpec>{{64}, {64}});
  }
  SUBCASE("llama") {
    const auto spec = read("llama");
    CHECK_FALSE(find(spec.layers[0].weights, WeightRole::kQBias));
    CHECK(spec.rope.scaling == RopeSpec::Scaling::kLlama3);
    CHECK(spec.rope.pairs == kernels::RopePairs::kHalves);
  }
  SUBCASE("qwen3-moe: norms of q and k, a softmax gate, no shared experts") {
    const auto spec = read("qwen3-moe");
    const LayerSpec& layer = spec.layers[0];
    CHECK(layer.attention.qk_dim == 48);
    CHECK(find(layer.weights, WeightRole::kQNorm)->k == 48);
    CHECK(layer.inner == 0);
    CHECK(layer.experts.gate.scoring == kernels::GateScoring::kSoftmax);
    CHECK(layer.experts.gate.method == kernels::GateMethod::kGreedy);
    CHECK(layer.experts.gate.norm_topk_prob);
    CHECK_FALSE(find(layer.weights, WeightRole::kRouterCorrection));
  }
  SUBCASE("glm4-moe: half of a head turns, two ends of text") {
    const auto spec = read("glm4-moe");
    CHECK(spec.rope.dim == 16);
    CHECK(spec.eos_token_ids == std::vector<TokenId>{1, 2});
    CHECK(find(spec.layers[1].weights, WeightRole::kRouterCorrection));
    CHECK(find(spec.layers[1].weights, WeightRole::kQBias));
    CHECK_FALSE(find(spec.layers[1].weights, WeightRole::kOBias));
    CHECK_FALSE(spec.layers[0].has_experts());
    CHECK(spec.layers[1].inner == 40);
  }
  SUBCASE("gpt-oss: sinks, windows, stacked experts") {
    const auto spec = read("gpt-oss");
    CHECK(spec.layers[0].attention.window == 40);
    CHECK(spec.layers[1].attention.window == 0);
    CHECK(find(spec.layers[0].weights, WeightRole::kSinks)->k == 6);
    CHECK(spec.act.kind == kernels::GatedAct::Kind::kClampedSwiglu);
    CHECK(spec.act.limit == 7.0f);
    CHECK_FALSE(spec.rope.truncate);
    CHECK(spec.rope.magnitude == doctest::Approx(1.34657));
    CHECK(spec.layers[0].experts.gate.scoring == kernels::GateScoring::kSoftmaxChosen);
    const WeightSpec* up = find(spec.layers[0].expert, WeightRole::kExpertUp);
    CHECK(up->stacked == 10);
    CHECK(up->first_row == 1);
    CHECK(up->row_step == 2);
    CHECK(up->format == StoredFormat::kMxfp4);
  }
  SUBCASE("kimi_k2 is DeepSeek-V3") {
    const auto spec = read("v3-int4");
    CHECK(spec.architecture == "kimi_k2");
    CHECK(spec.layers[1].attention.norm_eps == 1e-6f);
    CHECK(spec.norm_eps == 1e-5f);
  }
}

TEST_CASE("variants that are fine") {
  auto config = v3_config();
  config["eos_token_id"] = {1, 7};
  config["rope_scaling"] = nullptr;
  config["q_lora_rank"] = nullptr;
  auto parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->eos_token_ids == std::vector<TokenId>{1, 7});
  CHECK(parsed->rope.scaling == RopeSpec::Scaling::kNone);
  CHECK(parsed->layers[0].attention.q_lora == 0);
  CHECK(find(parsed->layers[0].weights, WeightRole::kQb)->name ==
        "model.layers.0.self_attn.q_proj.weight");

  // As transformers 5 writes it.
  config = v3_config();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 50000.0;
  config["rope_parameters"].erase("type");
  for (const char* key : {"rope_scaling", "rope_theta", "scoring_func", "topk_method"})
    config.erase(key);
  parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->rope.theta == 50000.0);
  CHECK(parsed->rope.scaling == RopeSpec::Scaling::kYarn);
  CHECK(parsed->layers[1].experts.gate.method == kernels::GateMethod::kNoauxTc);

  // As published: `type` alone.
  config = v3_config();
  config["rope_scaling"].erase("rope_type");
  config["rope_scaling"]["type"] = "yarn";
  parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->rope.scaling == RopeSpec::Scaling::kYarn);

  // A type of somebody's own, with the published class.
  config["model_type"] = "my_model";
  parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->architecture == "deepseek_v3");

  // A window on the layers from max_window_layers on.
  config = config_of("qwen2");
  config["use_sliding_window"] = true;
  config["sliding_window"] = 32;
  config["max_window_layers"] = 2;
  parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->layers[1].attention.window == 0);
  CHECK(parsed->layers[2].attention.window == 32);

  // Dense layers among the experts.
  config = config_of("qwen3-moe");
  config["mlp_only_layers"] = {1};
  parsed = parse_model_spec(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->layers[0].has_experts());
  CHECK_FALSE(parsed->layers[1].has_experts());
  CHECK(parsed->layers[1].inner == 360);
}

TEST_CASE("every defect of a config names the file, the key and what was expected") {
  struct Case {
    const char* key;
    json value;  // discarded: the key is removed
    const char* said;
    const char* told_of = nullptr;  // the key that the error names, if another one
    const char* golden = "v3";
  };
  const json removed(json::value_t::discarded);
  const Case cases[] = {
      {"model_type", removed, "model_type is missing"},
      {"model_type", "llama", "[\"LlamaForCausalLM\"], as model_type says", "architectures"},
      {"model_type", "deepseek_v32", "sparse attention is not supported yet"},
      {"model_type", 3, "a string"},
      {"architectures", json::array({"DeepseekV3Model"}), "as model_type says"},
      {"quantization_config", 3, "should be a JSON object"},
      {"hidden_act", "gelu", "\"silu\""},
      {"attention_bias", true, "biases are not supported"},
      {"attention_bias", "no", "true or false"},
      {"rope_interleave", false, "as the published checkpoints store it"},
      {"hidden_size", removed, "hidden_size is missing; it should be a whole number"},
      {"hidden_size", 0, "a whole number between 1 and"},
      {"hidden_size", -128, "a whole number between 1 and"},
      {"hidden_size", 128.5, "a whole number"},
      {"hidden_size", "128", "a whole number"},
      {"hidden_size", true, "a whole number"},
      {"hidden_size", limits::kDimensionMax + 1, "a whole number between 1 and"},
      {"hidden_size", std::numeric_limits<std::uint64_t>::max(), "a whole number"},
      {"hidden_size", json::array({1}), "a whole number"},
      {"hidden_size", nullptr, "hidden_size is missing"},
      {"vocab_size", 0, "a whole number"},
      {"num_hidden_layers", 0, "a whole number"},
      {"num_hidden_layers", limits::kLayersMax + 1, "a whole number"},
      {"max_position_embeddings", removed, "max_position_embeddings is missing"},
      {"rms_norm_eps", "x", "a number"},
      {"rms_norm_eps", 0, "a number between"},
      {"num_attention_heads", 0, "a whole number"},
      {"num_attention_heads", limits::kDimensionMax, "equal to num_attention_heads"},
      {"kv_lora_rank", limits::kDimensionMax, "all heads together", "num_attention_heads"},
      {"num_key_value_heads", 2, "equal to num_attention_heads, 4"},
      {"q_lora_rank", 0, "a whole number"},
      {"kv_lora_rank", removed, "kv_lora_rank is missing"},
      {"qk_nope_head_dim", removed, "qk_nope_head_dim is missing"},
      {"qk_rope_head_dim", 15, "even"},
      {"qk_rope_head_dim", 0, "a whole number"},
      {"v_head_dim", removed, "v_head_dim is missing"},
      {"intermediate_size", removed, "intermediate_size is missing"},
      {"n_routed_experts", 0, "a whole number"},
      {"n_routed_experts", removed, "n_routed_experts is missing"},
      {"n_routed_experts", limits::kExpertsMax + 1, "a whole number"},
      {"n_routed_experts", 18, "a divisor of n_routed_experts, 18", "n_group"},
      {"moe_intermediate_size", removed, "moe_intermediate_size is missing"},
      {"n_shared_experts", -1, "a whole number"},
      {"n_shared_experts", limits::kExpertsMax + 1, "a whole number"},
      {"num_experts_per_tok", 0, "a whole number"},
      {"num_experts_per_tok", 17, "at most n_routed_experts, 16"},
      {"num_experts_per_tok", 9, "large enough that the chosen groups hold", "topk_group"},
      {"n_group", 3, "a divisor of n_routed_experts, 16"},
      {"n_group", 16, "a group has two experts"},
      {"topk_group", 5, "at most n_group, 4"},
      {"topk_group", 0, "a whole number"},
      {"topk_method", "noaux", "\"noaux_tc\", \"group_limited_greedy\" or \"greedy\""},
      {"scoring_func", "relu", "\"sigmoid\" or \"softmax\""},
      {"norm_topk_prob", 1, "true or false"},
      {"routed_scaling_factor", -1, "a number between"},
      {"rope_theta", 0, "a number between"},
      {"rope_scaling", 4, "rope_scaling should be a JSON object"},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, "\"default\", \"linear\", \"yarn\""},
      {"rope_scaling", {{"rope_type", "longrope"}}, "\"yarn\" or \"llama3\""},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}, "a number between 1"},
      {"rope_scaling", {{"type", "yarn"}}, "factor is missing"},
      {"rope_scaling",
       {{"full_attention", {{"rope_type", "default"}}}},
       "full_attention should be absent"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 0.5}, {"original_max_position_embeddings", 64}},
       "factor should be a number between 1 and"},
      {"eos_token_id", json::array({1, "x"}), "or a list of them"},
      {"num_nextn_predict_layers", -1, "a whole number"},
      {"attention_bias", 1, "true or false", nullptr, "llama"},
      {"mlp_bias", true, "biases are not supported", nullptr, "llama"},
      {"num_key_value_heads", 3, "a divisor of num_attention_heads, 4", nullptr, "llama"},
      {"head_dim", 1, "a whole number", nullptr, "llama"},
      {"hidden_act", "gelu", "\"silu\"", nullptr, "llama"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"original_max_position_embeddings", 64},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4}},
       "above low_freq_factor",
       nullptr,
       "llama"},
      {"layer_types", json::array({"full_attention"}), "num_hidden_layers, 4", nullptr, "gpt-oss"},
      {"layer_types", json::array({"x", "x", "x", "x"}), "\"sliding_attention\"", nullptr,
       "gpt-oss"},
      {"sliding_window", nullptr, "sliding_window is missing", nullptr, "gpt-oss"},
      {"num_local_experts", removed, "num_local_experts is missing", nullptr, "gpt-oss"},
      {"num_experts_per_tok", 11, "at most num_local_experts, 10", nullptr, "gpt-oss"},
      {"quantization_config", removed, "of the method \"mxfp4\"", nullptr, "gpt-oss"},
      {"num_experts_per_tok", 17, "at most num_experts, 16", nullptr, "qwen3-moe"},
      {"mlp_only_layers", "all", "or a list of them", nullptr, "qwen3-moe"},
      {"decoder_sparse_step", 0, "a whole number", nullptr, "qwen3-moe"},
      {"partial_rotary_factor", 0.03, "an even number", "config.json", "glm4-moe"},
      {"partial_rotary_factor", 2, "a number between", nullptr, "glm4-moe"},
  };
  for (const auto& c : cases) {
    auto config = config_of(c.golden);
    if (c.value.is_discarded()) config.erase(c.key);
    else config[c.key] = c.value;
    const std::string error = error_of(config.dump());
    CAPTURE(std::string(c.key));
    CAPTURE(c.value.is_discarded() ? std::string("removed") : c.value.dump());
    CAPTURE(error);
    CHECK(contains(error, "config.json"));
    CHECK(contains(error, c.told_of ? c.told_of : c.key));
    CHECK(contains(error, c.said));
  }
}

TEST_CASE("a factor of positions needs to be told for which kind of scaling it is") {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    for (const json& type : {json(), json("linear")}) {
      auto config = config_of("llama");
      config.erase("rope_scaling");
      config[key] = {{"factor", 4.0}, {"rope_type", type}};
      const std::string error = error_of(config.dump());
      if (type.is_null()) CHECK(contains(error, std::string(key) + ": rope_type is missing"));
      else CHECK(error.empty());
    }
  }
}

TEST_CASE("an unknown model is told all that are known, and the nearest if one is near") {
  struct Case {
    const char* type;
    const char* published;
    const char* nearest;  ///< "": no family is told for its spelling alone
  };
  const Case cases[] = {
      {"deepseek_v4", "DeepseekV4ForCausalLM", "deepseek_v2"},
      {"deepseek-v3", "DeepSeekV3ForCausalLM", "deepseek_v3"},
      {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen3_moe"},
      {"llama4", "Llama4ForCausalLM", "llama"},
      {"mistral", "MistralForCausalLM", ""},
      {"mixtral", "MixtralForCausalLM", ""},
      {"gemma3", "Gemma3ForCausalLM", ""},
      {"phi3", "Phi3ForCausalLM", ""},
      {"opt", "OPTForCausalLM", ""},
      {"qwen3_next", "Qwen3NextForCausalLM", ""},
      {"", "", ""},
  };
  for (const Case& c : cases) {
    auto config = v3_config();
    config["architectures"] = {c.published};
    config["model_type"] = c.type;
    const std::string error = error_of(config.dump());
    CAPTURE(error);
    CHECK(contains(error, "deepseek_v2, deepseek_v3, kimi_k2, llama, qwen2, qwen3, qwen3_moe"));
    CHECK(contains(error, "is the nearest") == (c.nearest[0] != '\0'));
    CHECK(contains(error, "\"" + std::string(c.nearest) + "\" is the nearest") ==
          (c.nearest[0] != '\0'));
  }
}

TEST_CASE("a config that is no JSON object") {
  CHECK(contains(error_of(""), "not valid JSON"));
  CHECK(contains(error_of("{\"hidden_size\": "), "not valid JSON"));
  CHECK(contains(error_of("[1, 2]"), "should be a JSON object"));
  CHECK(contains(error_of(std::string(10000, '[')), "nests brackets deeper"));
  CHECK(contains(error_of("{\"a\": 1, \"a\": 2}"), "twice"));
  CHECK(contains(error_of("{\"a\": 1e999}"), "cannot be read"));
  CHECK(contains(error_of("{\"model_type\": \"\xff\"}"), "not valid JSON"));
  CHECK_FALSE(load_model_spec("/nonexistent").ok());
}

TEST_CASE("end tokens as configs write them") {
  const auto ends = [](const char* told) {
    json config = v3_config();
    config["eos_token_id"] = json::parse(told);
    const auto spec = parse_model_spec(config.dump(), "config.json");
    return spec.ok() ? spec->eos_token_ids : std::vector<TokenId>{-7};
  };
  using Ids = std::vector<TokenId>;
  CHECK(ends("1") == Ids{1});
  CHECK(ends("[1, null, 2.0]") == Ids{1, 2});
  CHECK(ends("null") == Ids{});
  CHECK(ends("[4294967295, 1]") == Ids{1});
  CHECK(ends("\"1\"") == Ids{-7});
  CHECK(ends("[1.5]") == Ids{-7});
}

TEST_CASE("generation_config.json") {
  auto parse = [](const char* text) { return parse_generation_config(text, "g.json"); };
  auto config =
      parse(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "eos_token_id": [1, 2]})");
  CHECK(*config.temperature == doctest::Approx(0.6));
  CHECK(*config.top_p == doctest::Approx(0.95));
  CHECK_FALSE(config.top_k.has_value());
  CHECK(config.eos_token_ids == std::vector<TokenId>{1, 2});
  config = parse(R"({"do_sample": false, "temperature": 0.6})");
  CHECK(*config.temperature == 0.0f);
  config = parse(R"({"top_k": 50.0, "temperature": 1, "min_p": null, "eos_token_id": [1, 2.0]})");
  CHECK(config.top_k == 50);
  CHECK(config.temperature == 1.0f);
  CHECK(config.eos_token_ids == std::vector<TokenId>{1, 2});
  CHECK(config.left_out.empty());
  // Of another type: left out, with a sentence each.
  config = parse(R"({"top_p": "high", "top_k": 2.5, "do_sample": 1, "min_p": [],
                     "eos_token_id": [1, -1, "x"], "repetition_penalty": 1e300})");
  CHECK_FALSE(config.top_p);
  CHECK_FALSE(config.top_k);
  CHECK_FALSE(config.temperature);
  CHECK_FALSE(config.repetition_penalty);
  CHECK(config.eos_token_ids == std::vector<TokenId>{1});
  REQUIRE(config.left_out.size() == 7);
  CHECK(config.left_out[0] == "g.json: top_p is left out; it should be a number, but is \"high\".");
  // Of what is no object, nothing.
  for (const char* text : {"[]", "{", "", "null", R"({"top_p": NaN})"}) {
    CHECK_FALSE(parse(text).top_p);
    CHECK(parse(text).left_out.size() == 1);
  }
  CHECK(load_generation_config("/nonexistent").ok());
}

}  // namespace
}  // namespace troupe
