// How config.json says that weights are stored.

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/spec/quantization.h"
#include "model/spec/read_spec.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using nlohmann::json;
using testing::must;

json golden(const std::string& name) {
  std::ifstream in(testing::source_path("tests/golden/" + name + "/config.json"));
  return json::parse(in);
}

StoredFormat format(const ModelSpec& spec, WeightRole role, std::size_t layer = 1) {
  for (const auto* list :
       {&spec.first, &spec.layers[layer].weights, &spec.layers[layer].expert, &spec.last})
    for (const auto& w : *list)
      if (w.role == role) return w.format;
  FAIL("no such weight");
  return StoredFormat::kPlain;
}

TEST_CASE("each method converts what its published code converts") {
  const auto spec_of = [](const json& config) {
    return must(parse_model_spec(config.dump(), "config.json"));
  };
  SUBCASE("fp8: everything linear but the head and the gate") {
    const auto spec = spec_of(golden("v3-fp8"));
    for (const auto role : {WeightRole::kQa, WeightRole::kKvB, WeightRole::kO, WeightRole::kGate,
                            WeightRole::kExpertDown})
      CHECK(format(spec, role) == StoredFormat::kFp8Blocks);
    for (const auto role :
         {WeightRole::kHead, WeightRole::kRouter, WeightRole::kEmbedding, WeightRole::kInputNorm})
      CHECK(format(spec, role) == StoredFormat::kPlain);
    CHECK(format(spec_of(golden("v3-fp8-ue8m0")), WeightRole::kUp) == StoredFormat::kFp8Blocks);
  }
  SUBCASE("compressed-tensors: the ignore list decides") {
    const auto spec = spec_of(golden("v3-int4"));
    auto older = golden("v3-int4");
    older["compression_config"] = std::exchange(older["quantization_config"], nullptr);
    CHECK(format(spec_of(older), WeightRole::kExpertUp) == StoredFormat::kInt4Packed);
    CHECK(format(spec, WeightRole::kExpertUp) == StoredFormat::kInt4Packed);
    for (const auto role : {WeightRole::kQa, WeightRole::kO, WeightRole::kGate, WeightRole::kHead})
      CHECK(format(spec, role) == StoredFormat::kPlain);
    CHECK(format(spec, WeightRole::kGate, 0) == StoredFormat::kPlain);
    auto config = golden("v3-int4");
    config["quantization_config"]["ignore"] = {"re:.*experts"};
    const auto other = spec_of(config);
    CHECK(format(other, WeightRole::kExpertUp) == StoredFormat::kPlain);
    CHECK(format(other, WeightRole::kHead) == StoredFormat::kInt4Packed);
    // From the start of the name, as Python's re.match.
    config["quantization_config"]["ignore"] = {"re:self_attn", "model.layers.1.self_attn.o_proj"};
    const auto third = spec_of(config);
    CHECK(format(third, WeightRole::kQa) == StoredFormat::kInt4Packed);
    CHECK(format(third, WeightRole::kO) == StoredFormat::kPlain);
    CHECK(format(third, WeightRole::kO, 2) == StoredFormat::kInt4Packed);
    // Of several groups the first that means a module.
    auto& groups = config["quantization_config"]["config_groups"];
    groups["group_1"] = groups["group_0"];
    groups["group_0"]["targets"] = {"re:.*down_proj"};
    groups["group_1"]["weights"]["group_size"] = 64;
    config["quantization_config"]["ignore"] = {"lm_head"};
    const auto fourth = spec_of(config);
    for (const auto& w : fourth.layers[1].expert)
      CHECK(w.group == (w.role == WeightRole::kExpertDown ? 32 : 64));
  }
  SUBCASE("FP8 by channel") {
    const auto spec = spec_of(golden("llama-fp8-dynamic"));
    CHECK(format(spec, WeightRole::kDown) == StoredFormat::kFp8Channels);
    CHECK(format(spec, WeightRole::kHead) == StoredFormat::kPlain);
  }
  SUBCASE("awq") {
    auto config = golden("v3-awq");
    CHECK(format(spec_of(config), WeightRole::kQb) == StoredFormat::kInt4Awq);
    config["quantization_config"]["modules_to_not_convert"] = {"self_attn"};
    CHECK(format(spec_of(config), WeightRole::kQb) == StoredFormat::kPlain);
    CHECK(format(spec_of(config), WeightRole::kExpertUp) == StoredFormat::kInt4Awq);
  }
  SUBCASE("names in a list end at a dot") {
    auto config = golden("v3-fp8");
    auto& list = config["quantization_config"]["modules_to_not_convert"];
    for (const char* name : {"model.layers.0.mlp.gate", "mlp.gate", "gate", "ers.0.mlp", "0.ml", "",
                             ".", "model.layers.0.mlp.gate_proj.weight"}) {
      CAPTURE(std::string(name));
      list = {name};
      CHECK(format(spec_of(config), WeightRole::kGate, 0) == StoredFormat::kFp8Blocks);
    }
    for (const char* name : {"model.layers.0.mlp.gate_proj", "gate_proj", "mlp", "layers.0", "0",
                             "model", "model.layers.0."}) {
      CAPTURE(std::string(name));
      list = {name};
      CHECK(format(spec_of(config), WeightRole::kGate, 0) == StoredFormat::kPlain);
    }
    list = {"model.layers.1"};
    CHECK(format(spec_of(config), WeightRole::kQa, 1) == StoredFormat::kPlain);
    CHECK(format(spec_of(config), WeightRole::kQa, 2) == StoredFormat::kFp8Blocks);
  }
  SUBCASE("mxfp4: stacked experts alone") {
    auto config = golden("gpt-oss");
    CHECK(format(spec_of(config), WeightRole::kExpertUp) == StoredFormat::kMxfp4);
    CHECK(format(spec_of(config), WeightRole::kQ) == StoredFormat::kPlain);
    // There is no other way to store them that is supported.
    config["quantization_config"]["modules_to_not_convert"] = {"model.layers.*.mlp"};
    CHECK(format(spec_of(config), WeightRole::kExpertUp) == StoredFormat::kMxfp4);
  }
}

TEST_CASE("what is not supported is told by name, with what is") {
  struct Case {
    const char* golden;
    const char* change;  ///< a JSON merge patch of quantization_config
    const char* said;
  };
  const Case cases[] = {
      {"v3", R"({"quant_method": "gptq"})", "\"compressed-tensors\""},
      {"v3", R"({"quant_method": "bitsandbytes"})", "but is \"bitsandbytes\""},
      {"v3", R"({"bits": 8})", "quant_method is missing"},
      {"v3-fp8", R"({"weight_block_size": null})", "weight_block_size is missing"},
      {"v3-fp8", R"({"weight_block_size": [64, 64]})", "[128, 128]"},
      {"v3-fp8", R"({"fmt": "e5m2"})", "\"e4m3\""},
      {"v3-fp8", R"({"scale_fmt": "x"})", "\"ue8m0\" or absent"},
      {"v3-fp8", R"({"modules_to_not_convert": [1]})", "a list of strings"},
      {"v3-awq", R"({"bits": 8})", "bits should be 4"},
      {"v3-awq", R"({"group_size": -1})", "32, 64 or 128"},
      {"v3-awq", R"({"version": "gemv"})", "\"gemm\""},
      {"v3-awq", R"({"zero_point": false})", "zero_point should be true"},
      {"v3-int4", R"({"config_groups": []})", "config_groups"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": null}}})", "weights is missing"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"num_bits": 8}}}})",
       "num_bits should be 4 where type is \"int\"; supported are \"float\" of 8 bits (FP8) and "
       "\"int\" of 4, but is 8"},
      {"v3-int4",
       R"({"config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "channel"}}}})",
       "num_bits should be 4"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"type": "float"}}}})",
       "num_bits should be 8 where type is \"float\""},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"type": "nf"}}}})",
       "type should be \"float\" or \"int\""},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"num_bits": 3}}}})", "num_bits"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"symmetric": false}}}})",
       "zero points"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"actorder": "group"}}}})",
       "reordered columns"},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"strategy": "channel"}}}})",
       "\"group\""},
      {"v3-int4", R"({"config_groups": {"group_0": {"weights": {"group_size": 16}}}})",
       "32, 64 or 128"},
      {"v3-int4", R"({"transform_config": {"config_groups": {"u": {"type": "hadamard"}}}})",
       "rotated"},
      {"v3-int4", R"({"sparsity_config": {"format": "sparse-24-bitmask"}})", "sparse"},
      {"v3-int4", R"({"format": "marlin-24"})", "2:4"},
      {"v3-int4", R"({"ignore": ["re:("]})", "no regular expression"},
      {"v3-int4", R"({"ignore": ["re:(.*)*(.*)*(.*)*$x"]})", "takes too long"},
      {"llama-fp8-dynamic",
       R"({"config_groups": {"group_0": {"weights": {"strategy": "tensor"}}}})", "\"channel\""},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.change));
    auto config = golden(c.golden);
    auto patch = json::parse(c.change);
    config["quantization_config"].merge_patch(patch);
    const auto spec = parse_model_spec(config.dump(), "config.json");
    REQUIRE_FALSE(spec.ok());
    CAPTURE(spec.error().message);
    CHECK(spec.error().message.find("config.json") != std::string::npos);
    CHECK(spec.error().message.find(c.said) != std::string::npos);
  }
}

}  // namespace
}  // namespace troupe
