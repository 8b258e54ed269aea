// Every spelling of rotary angles in config.json, against what transformers makes of it.

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/spec/read_spec.h"
#include "runtime/limits.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using nlohmann::json;
using testing::must;
using Scaling = RopeSpec::Scaling;

/// A golden config with the keys of rotary angles replaced by those of `said`.
json config_with(const std::string& golden, const json& said) {
  std::ifstream in(testing::source_path("tests/golden/" + golden + "/config.json"));
  json config = json::parse(in);
  for (const char* key : {"rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor"})
    config.erase(key);
  config.update(said);
  return config;
}

json with(json base, const json& more) {
  base.update(more);
  return base;
}

const json kYarn = {
    {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
const json kDefault = {{"rope_type", "default"}, {"rope_theta", 5000.0}};

/// What is in `rope_parameters` of AutoConfig.from_pretrained() of transformers 5.24.0 for these
/// keys in the config of tests/golden/llama; its max_position_embeddings are 2048.
struct Spelling {
  json said;
  double theta;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  std::int32_t original = 0;
};

TEST_CASE("rotary angles are read as transformers reads them") {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}};
  const Spelling spellings[] = {
      {json::object(), 10000},
      {{{"rope_theta", 7000.0}}, 7000},
      {{{"rope_scaling", nullptr}, {"rope_theta", 7000.0}}, 7000},
      {{{"rope_scaling", json::object()}, {"rope_theta", 7000.0}}, 7000},
      {{{"rope_scaling", {{"rope_type", "default"}}}, {"rope_theta", 7000.0}}, 7000},
      {{{"rope_scaling", kYarn}, {"rope_theta", 7000.0}}, 7000, Scaling::kYarn, 4, 64},
      {{{"rope_scaling", with(kYarn, {{"rope_theta", 6000.0}})}, {"rope_theta", 7000.0}},
       6000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_scaling", kYarn}}, 10000, Scaling::kYarn, 4, 64},
      {{{"rope_parameters", with(kYarn, {{"rope_theta", 6000.0}})}}, 6000, Scaling::kYarn, 4, 64},
      {{{"rope_parameters", kYarn}, {"rope_theta", 7000.0}}, 7000, Scaling::kYarn, 4, 64},
      {{{"rope_parameters", with(kYarn, {{"rope_theta", 6000.0}})}, {"rope_theta", 7000.0}},
       6000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", kDefault}, {"rope_scaling", kYarn}, {"rope_theta", 5000.0}},
       5000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", {{"rope_type", "default"}}},
        {"rope_scaling", kYarn},
        {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", kDefault}, {"rope_scaling", with(kYarn, {{"rope_theta", 5000.0}})}},
       5000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", json::object()}, {"rope_scaling", kYarn}, {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", nullptr}, {"rope_scaling", kYarn}, {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", with(kYarn, {{"rope_theta", 6000.0}})},
        {"rope_scaling", json::object()}},
       6000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", with(kYarn, {{"rope_theta", 6000.0}})}, {"rope_scaling", nullptr}},
       6000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_parameters", with(kYarn, {{"rope_theta", 6000.0}})},
        {"rope_scaling", kYarn},
        {"rope_theta", 6000.0}},
       6000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_scaling",
         {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}},
        {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_scaling", with(kYarn, {{"type", "linear"}})}, {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       64},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}, {"rope_theta", 7000.0}},
       7000,
       Scaling::kYarn,
       4,
       2048},
      {{{"rope_scaling", llama3}, {"rope_theta", 7000.0}}, 7000, Scaling::kLlama3, 4, 2048},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}, {"rope_theta", 7000.0}},
       7000,
       Scaling::kLinear,
       2},
      {{{"rope_parameters", {{"rope_type", "default"}}},
        {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
        {"rope_theta", 7000.0}},
       7000,
       Scaling::kLinear,
       2},
  };
  for (const Spelling& s : spellings) {
    CAPTURE(s.said.dump());
    const auto rope =
        must(parse_model_spec(config_with("llama", s.said).dump(), "config.json")).rope;
    CHECK(rope.theta == s.theta);
    CHECK(rope.scaling == s.scaling);
    CHECK(rope.factor == s.factor);
    CHECK(rope.original_positions == s.original);
  }
}

TEST_CASE("the share of a head that turns is read as transformers reads it") {
  const auto dim = [](const char* golden, const json& said) {
    return must(parse_model_spec(config_with(golden, said).dump(), "config.json")).rope.dim;
  };
  const std::int32_t head = dim("glm4-moe", {{"partial_rotary_factor", 1.0}});
  const json half = with(kDefault, {{"partial_rotary_factor", 0.5}});
  CHECK(dim("glm4-moe", json::object()) == head / 2);  // the family's own
  CHECK(dim("glm4-moe", {{"rope_parameters", kDefault}, {"partial_rotary_factor", 0.25}}) ==
        head / 4);
  CHECK(dim("glm4-moe", {{"rope_parameters", half}}) == head / 2);
  CHECK(dim("glm4-moe", {{"rope_parameters", half}, {"partial_rotary_factor", 0.25}}) == head / 2);
}

TEST_CASE("what rope_scaling and rope_parameters contradict each other in is named") {
  struct Case {
    json scaling, parameters;
    const char* named;
  };
  const Case cases[] = {
      // transformers would take the family's default in place of this theta
      {kYarn, kDefault, "rope_theta, 10000.0 and 5000.0"},
      {kYarn, with(kYarn, {{"factor", 2.0}}), "factor, 4.0 and 2.0"},
      {{{"rope_type", "default"}}, kYarn, "rope_type, \"default\" and \"yarn\""},
      {kYarn, {{"type", "linear"}, {"factor", 4.0}}, "rope_type, \"yarn\" and \"linear\""},
      {kYarn, with(kYarn, {{"beta_fast", 16}}), "beta_fast, null and 16"},
      {kYarn,
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
       "partial_rotary_factor, 1.0 and 0.5"},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.named));
    const json said = {{"rope_scaling", c.scaling}, {"rope_parameters", c.parameters}};
    const auto spec = parse_model_spec(config_with("llama", said).dump(), "config.json");
    REQUIRE_FALSE(spec.ok());
    CAPTURE(spec.error().message);
    CHECK(spec.error().message.find(std::string("contradict each other in ") + c.named) !=
          std::string::npos);
  }
  const json beside = {{"rope_scaling", kYarn}, {"original_max_position_embeddings", 32}};
  const auto spec = parse_model_spec(config_with("llama", beside).dump(), "config.json");
  REQUIRE_FALSE(spec.ok());
  CHECK(spec.error().message.find("should be as it is beside, 32") != std::string::npos);
}

TEST_CASE("YaRN lengthens the context to what it was made for") {
  const auto positions = [](std::int32_t max, const json& scaling) {
    auto config = config_with("llama", {{"rope_scaling", scaling}});
    config["max_position_embeddings"] = max;
    return must(parse_model_spec(config.dump(), "config.json")).positions_max;
  };
  json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  CHECK(positions(160, yarn) == 512);
  CHECK(positions(512, yarn) == 512);
  CHECK(positions(4096, yarn) == 4096);
  yarn.erase("original_max_position_embeddings");
  CHECK(positions(160, yarn) == 640);
  yarn["factor"] = 1e6;
  CHECK(positions(160, yarn) == limits::kDimensionMax);
  CHECK(positions(160, {{"type", "linear"}, {"factor", 4.0}}) == 160);
  CHECK(positions(160, {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 128}}) == 160);
}

TEST_CASE("gpt-oss has a theta of its own, and no published one is without YaRN") {
  const auto read = [](const json& said) {
    return parse_model_spec(config_with("gpt-oss", said).dump(), "config.json");
  };
  CHECK(must(read({{"rope_scaling", kYarn}})).rope.theta == 150000);
  CHECK_FALSE(read(json::object()).ok());
}

}  // namespace
}  // namespace troupe
