// What config.json and generation_config.json may hold, and how each defect is told.

#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/config.h"
#include "model/generation_config.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

json v3_config() {
  std::ifstream in(std::string(TROUPE_SOURCE_DIR) + "/tests/golden/v3/config.json");
  return json::parse(in);
}

std::string error_of(const std::string& text) {
  const auto result = parse_model_config(text, "config.json");
  return result ? "" : result.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a published config is read") {
  const auto config = parse_model_config(v3_config().dump(), "config.json");
  REQUIRE(config.ok());
  CHECK(config->architecture == "deepseek_v3");
  CHECK(config->num_layers == 4);
  CHECK(config->layer_kind(0) == LayerKind::kDense);
  CHECK(config->layer_kind(1) == LayerKind::kExperts);
  CHECK(config->q_lora_rank == 48);
  CHECK(config->kv_row() == 48);
  CHECK(config->topk_method == TopkMethod::kNoAuxTc);
  CHECK(config->scoring_func == ScoringFunc::kSigmoid);
  CHECK(config->eos_token_ids == std::vector<TokenId>{1});
  REQUIRE(config->yarn.has_value());
  CHECK(config->yarn->factor == 40);
  CHECK(config->yarn->original_max_position_embeddings == 64);
}

TEST_CASE("variants that are fine") {
  auto config = v3_config();
  config["eos_token_id"] = {1, 7};
  config["rope_scaling"] = nullptr;
  config["q_lora_rank"] = nullptr;
  auto parsed = parse_model_config(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->eos_token_ids == std::vector<TokenId>{1, 7});
  CHECK_FALSE(parsed->yarn.has_value());
  CHECK(parsed->q_lora_rank == 0);

  // As transformers 5 writes it.
  config = v3_config();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 50000.0;
  config["rope_parameters"].erase("type");
  for (const char* key : {"rope_scaling", "rope_theta", "scoring_func", "topk_method"})
    config.erase(key);
  parsed = parse_model_config(config.dump(), "config.json");
  REQUIRE(parsed.ok());
  CHECK(parsed->rope_theta == 50000.0);
  CHECK(parsed->yarn.has_value());
  CHECK(parsed->topk_method == TopkMethod::kNoAuxTc);
}

TEST_CASE("every defect of a config names the file, the key and what was expected") {
  struct Case {
    const char* key;
    json value;  // discarded: the key is removed
    const char* said;
    const char* told_of = nullptr;  // the key that the error names, if another one
  };
  const json removed(json::value_t::discarded);
  const Case cases[] = {
      {"model_type", removed, "model_type is missing"},
      {"model_type", "llama", "\"deepseek_v3\" or \"deepseek_v2\""},
      {"model_type", "qwen2", "model_type should be"},
      {"model_type", 3, "a string"},
      {"quantization_config", {{"quant_method", "fp8"}}, "'fp8' are not supported yet"},
      {"quantization_config", {{"quant_method", "awq"}}, "'awq' are not supported yet"},
      {"quantization_config", 3, "not supported yet"},
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
      {"rope_scaling", {{"type", "linear"}, {"factor", 2}}, "\"yarn\" or \"default\""},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 2}},
       "original_max_position_embeddings is missing"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 0.5}, {"original_max_position_embeddings", 64}},
       "factor should be a number between 1 and"},
      {"eos_token_id", 512, "a whole number between 0 and 511 or a list"},
      {"eos_token_id", json::array({1, "x"}), "or a list of them"},
      {"eos_token_id", -1, "a whole number"},
      {"num_nextn_predict_layers", -1, "a whole number"},
  };
  for (const auto& c : cases) {
    auto config = v3_config();
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

TEST_CASE("a config that is no JSON object") {
  CHECK(contains(error_of(""), "not valid JSON"));
  CHECK(contains(error_of("{\"hidden_size\": "), "not valid JSON"));
  CHECK(contains(error_of("[1, 2]"), "should be a JSON object"));
  CHECK(contains(error_of(std::string(10000, '[')), "nests brackets deeper"));
  CHECK(contains(error_of("{\"a\": 1, \"a\": 2}"), "twice"));
  CHECK(contains(error_of("{\"a\": 1e999}"), "cannot be read"));
  CHECK(contains(error_of("{\"model_type\": \"\xff\"}"), "not valid JSON"));
  CHECK_FALSE(load_model_config("/nonexistent").ok());
}

TEST_CASE("generation_config.json") {
  auto parse = [](const char* text) { return parse_generation_config(text, "g.json"); };
  auto config =
      parse(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "eos_token_id": [1, 2]})");
  REQUIRE(config.ok());
  CHECK(*config->temperature == doctest::Approx(0.6));
  CHECK(*config->top_p == doctest::Approx(0.95));
  CHECK_FALSE(config->top_k.has_value());
  CHECK(config->eos_token_ids == std::vector<TokenId>{1, 2});
  config = parse(R"({"do_sample": false, "temperature": 0.6})");
  REQUIRE(config.ok());
  CHECK(*config->temperature == 0.0f);
  CHECK_FALSE(parse(R"({"temperature": -1})").ok());
  CHECK_FALSE(parse(R"({"top_p": 0})").ok());
  CHECK_FALSE(parse(R"({"top_p": "high"})").ok());
  CHECK_FALSE(parse(R"({"repetition_penalty": 0})").ok());
  CHECK_FALSE(parse("[]").ok());
  CHECK(load_generation_config("/nonexistent").ok());
}

}  // namespace
}  // namespace troupe
