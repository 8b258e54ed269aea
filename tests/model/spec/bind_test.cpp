// A spec meets what a checkpoint has.

#include <doctest/doctest.h>
#include <time.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/json_reader.h"
#include "model/spec/bind.h"
#include "model/spec/read_spec.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using testing::must;
using testing::source_path;

constexpr const char* kGoldens[] = {
    "v3",    "v2-lite", "v3-fp8",    "v3-fp8-ue8m0", "v3-int4", "v3-awq",           "llama",
    "qwen2", "qwen3",   "qwen3-moe", "glm4-moe",     "gpt-oss", "llama-fp8-dynamic"};

TEST_CASE("every reference checkpoint is what its config says") {
  for (const char* golden : kGoldens) {
    CAPTURE(std::string(golden));
    const auto folder = source_path(std::string("tests/golden/") + golden);
    const auto checkpoint = must(Checkpoint::open(folder));
    const ModelSpec told = must(load_model_spec(folder));
    const ModelSpec& found = checkpoint->spec();
    for (std::size_t i = 0; i < told.layers.size(); ++i)
      for (std::size_t j = 0; j < told.layers[i].expert.size(); ++j)
        CHECK(told.layers[i].expert[j].format == found.layers[i].expert[j].format);
  }
}

/// All tensors that a spec wants, as a checkpoint would have them.
TensorDirectory directory_of(const ModelSpec& spec) {
  TensorDirectory directory("folder");
  const auto file = directory.add_file("folder/model.safetensors");
  const auto add = [&](const WeightSpec& w, std::int32_t expert = 0) {
    for (const StoredPart& part : stored_parts(w, expert)) {
      if (directory.find(part.name)) continue;
      TensorInfo info;
      info.dtype = part.dtypes[0];
      info.shape = part.shape;
      CHECK(directory.add(file, part.name, info).ok());
    }
  };
  for (const auto* list : {&spec.first, &spec.last})
    for (const auto& w : *list) add(w);
  for (const auto& layer : spec.layers) {
    for (const auto& w : layer.weights) add(w);
    for (const auto& w : layer.expert)
      for (std::int32_t e = 0; e < layer.experts.gate.experts; ++e) add(w, e);
  }
  return directory;
}

/// A copy in which some tensors are otherwise; a null info removes one.
TensorDirectory changed(const TensorDirectory& from, const std::string& name,
                        const TensorInfo* info) {
  TensorDirectory to("folder");
  const auto file = to.add_file("folder/model.safetensors");
  for (const auto& [n, entry] : from.entries())
    if (n != name) CHECK(to.add(file, n, entry.info).ok());
  if (info) CHECK(to.add(file, name, *info).ok());
  return to;
}

std::string bind_error(const ModelSpec& spec, TensorDirectory directory) {
  const auto bound = bind_spec(spec, directory);
  return bound ? "" : bound.error().message;
}

void check_says(const std::string& error, std::initializer_list<const char*> parts) {
  CAPTURE(error);
  for (const char* part : parts) CHECK(error.find(part) != std::string::npos);
}

ModelSpec golden_spec(const std::string& name) {
  return must(load_model_spec(source_path("tests/golden/" + name)));
}

TEST_CASE("a weight that is plain where the config says quantised is plain") {
  const ModelSpec spec = golden_spec("v3-fp8");
  const auto full = directory_of(spec);
  const std::string module = "model.layers.2.self_attn.o_proj";
  const TensorInfo plain{DType::kF32, {256, 128}, 0, 0};
  auto directory =
      changed(changed(full, module + ".weight_scale_inv", nullptr), module + ".weight", &plain);
  const auto bound = must(bind_spec(spec, directory));
  for (const auto& w : bound.layers[2].weights)
    if (w.role == WeightRole::kO) {
      CHECK(w.format == StoredFormat::kPlain);
      CHECK(w.dtype == DType::kF32);
      CHECK(w.name == module + ".weight");
    } else if (w.role == WeightRole::kQa) {
      CHECK(w.format == StoredFormat::kFp8Blocks);
    }
}

/// The format of every matrix that quantisation is for.
std::vector<StoredFormat> formats(const ModelSpec& spec) {
  std::vector<StoredFormat> found;
  const auto add = [&](const std::vector<WeightSpec>& weights) {
    for (const WeightSpec& w : weights)
      if (w.converts) found.push_back(w.format);
  };
  for (const LayerSpec& layer : spec.layers) {
    add(layer.weights);
    add(layer.expert);
  }
  add(spec.last);
  return found;
}

TEST_CASE("what is stored decides, whatever the config's lists say") {
  struct Case {
    const char* golden;
    const char* list;
    nlohmann::json said;
  };
  const Case cases[] = {
      {"v3-fp8", "modules_to_not_convert", {"model.layers.0.mlp.gate", "lm_head"}},
      {"v3-fp8", "modules_to_not_convert", {"self_attn", "experts", "mlp"}},
      {"v3-fp8-ue8m0", "modules_to_not_convert", {"layers"}},
      {"v3-awq", "modules_to_not_convert", {"model.layers.1.", "mlp"}},
      {"v3-int4", "ignore", {"re:.*"}},
      {"v3-int4", "ignore", nlohmann::json::array()},
      {"v3-int4", "ignore", {"lm_head", "re:.*self_attn.*"}},
      {"llama-fp8-dynamic", "ignore", {"re:.*proj"}},
      {"llama-fp8-dynamic", "ignore", nlohmann::json::array()},
      {"gpt-oss", "modules_to_not_convert", {"model.layers.*.mlp"}},
      {"gpt-oss", "modules_to_not_convert", nlohmann::json::array()},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.golden));
    CAPTURE(c.said.dump());
    const auto folder = source_path(std::string("tests/golden/") + c.golden);
    auto config = nlohmann::json::parse(must(read_text_file(folder + "/config.json", 1u << 20)));
    config["quantization_config"][c.list] = c.said;
    const auto spec = must(parse_model_spec(config.dump(), "config.json"));
    auto directory = directory_of(must(Checkpoint::open(folder))->spec());
    const auto bound = must(bind_spec(spec, directory));
    CHECK(formats(bound) == formats(must(Checkpoint::open(folder))->spec()));
  }
}

TEST_CASE("where a config has several groups, the one whose tensors are there") {
  auto config = nlohmann::json::parse(
      must(read_text_file(source_path("tests/golden/v3-int4/config.json"), 1u << 20)));
  auto& groups = config["quantization_config"]["config_groups"];
  groups["group_1"] = groups["group_0"];
  groups["group_1"]["weights"] = {{"type", "float"}, {"num_bits", 8}, {"strategy", "channel"}};
  groups["group_1"]["targets"] = {"re:.*self_attn"};
  const auto stored = must(parse_model_spec(config.dump(), "config.json"));
  auto directory = directory_of(stored);
  groups["group_1"]["targets"] = {"re:.*nothing"};
  CHECK(formats(must(bind_spec(must(parse_model_spec(config.dump(), "config.json")), directory))) ==
        formats(stored));
}

TEST_CASE("all experts of a layer have scales for as many columns") {
  auto config = nlohmann::json::parse(
      must(read_text_file(source_path("tests/golden/v3-int4/config.json"), 1u << 20)));
  auto& groups = config["quantization_config"]["config_groups"];
  groups["group_1"] = groups["group_0"];
  auto& size = groups["group_1"]["weights"]["group_size"];
  size = 2 * size.get<int>();
  groups["group_1"]["targets"] = {"re:.*nothing"};
  const ModelSpec spec = must(parse_model_spec(config.dump(), "config.json"));
  const auto full = directory_of(spec);
  CHECK(bind_error(spec, changed(full, "", nullptr)) == "");
  const std::string scale = "model.layers.1.mlp.experts.3.up_proj.weight_scale";
  TensorInfo coarser = full.find(scale)->info;
  coarser.shape.back() /= 2;
  check_says(bind_error(spec, changed(full, scale, &coarser)),
             {"model.layers.1.mlp.experts.3.up_proj", "another format than", "experts.0.up_proj"});
}

TEST_CASE("defects of a quantised checkpoint name the tensor") {
  const ModelSpec spec = golden_spec("v3-fp8");
  const auto full = directory_of(spec);
  CHECK(bind_error(spec, changed(full, "", nullptr)) == "");
  const std::string up = "model.layers.1.mlp.experts.3.up_proj";
  SUBCASE("FP8 without scales") {
    check_says(
        bind_error(spec, changed(full, up + ".weight_scale_inv", nullptr)),
        {"lacks the tensor model.layers.1.mlp.experts.3.up_proj.weight_scale_inv", "[2, 2]"});
  }
  SUBCASE("scales of another shape") {
    const TensorInfo wrong{DType::kF32, {2, 3}, 0, 0};
    check_says(bind_error(spec, changed(full, up + ".weight_scale_inv", &wrong)),
               {"up_proj.weight_scale_inv", "should have shape [2, 2], but has [2, 3]"});
  }
  SUBCASE("codes of another type") {
    const TensorInfo wrong{DType::kF8E5M2, {144, 256}, 0, 0};
    check_says(bind_error(spec, changed(full, up + ".weight", &wrong)),
               {"up_proj.weight", "should have dtype F8_E4M3, but has F8_E5M2"});
  }
  SUBCASE("one expert that is stored otherwise") {
    const TensorInfo plain{DType::kBf16, {144, 256}, 0, 0};
    check_says(
        bind_error(spec, changed(full, up + ".weight", &plain)),
        {"model.layers.1.mlp.experts.3.up_proj", "another format than", "experts.0.up_proj"});
  }
}

TEST_CASE("a tensor that the spec has no place for is refused, but for what changes no answer") {
  const ModelSpec spec = golden_spec("v3-fp8");
  const auto full = directory_of(spec);
  const TensorInfo some{DType::kBf16, {4}, 0, 0};
  const std::string past = "model.layers." + std::to_string(spec.num_layers());
  const std::string mtp = "model.layers." + std::to_string(spec.num_layers() + spec.mtp_layers);
  for (const std::string& name :
       {std::string("model.layers.0.self_attn.o_proj.bias"), std::string("lm_head.bias"),
        std::string("model.layers.0.self_attn.q_norm.weight"),
        std::string("model.layers.1.mlp.experts.99.up_proj.weight"),
        std::string("model.layers.1.self_attn.q_b_proj.weight_scale"),
        mtp + ".input_layernorm.weight", std::string("visual.patch.weight")})
    check_says(bind_error(spec, changed(full, name, &some)), {name.c_str(), "has no place"});
  REQUIRE(spec.mtp_layers == 1);
  CHECK(bind_error(spec, changed(full, past + ".eh_proj.weight", &some)) == "");
  for (const std::string name :
       {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "k_scale",
        "attn.v_scale", "k_zero_point", "prob_output_scale", "k_proj.output_scale",
        "o_proj.input_scale", "o_proj.input_zero_point", "o_proj.weight_zero_point"})
    CHECK(bind_error(spec, changed(full, "model.layers.0.self_attn." + name, &some)) == "");
  CHECK(bind_error(spec, changed(full, "model.rotary_emb.inv_freq", &some)) == "");
}

TEST_CASE("of a head and an embedding that are tied, what is stored decides") {
  auto config = nlohmann::json::parse(
      must(read_text_file(source_path("tests/golden/llama/config.json"), 1u << 20)));
  config["tie_word_embeddings"] = false;
  const auto apart = directory_of(must(parse_model_spec(config.dump(), "config.json")));
  config["tie_word_embeddings"] = true;
  const auto spec = must(parse_model_spec(config.dump(), "config.json"));
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  const auto names = [&](TensorDirectory directory) {
    const auto bound = must(bind_spec(spec, directory));
    return std::pair(bound.first.back().name, bound.last.back().name);
  };
  CHECK(names(changed(apart, head, nullptr)) == std::pair(embedding, embedding));
  CHECK(names(changed(apart, embedding, nullptr)) == std::pair(head, head));
  CHECK(names(changed(apart, "", nullptr)) == std::pair(embedding, head));
  TensorInfo other = apart.find(head)->info;
  other.shape[0] += 1;
  check_says(bind_error(spec, changed(apart, head, &other)), {"lm_head.weight", "shape"});
}

TEST_CASE("groups that do not divide the columns") {
  auto config = nlohmann::json::parse(
      must(read_text_file(source_path("tests/golden/v3-int4/config.json"), 1u << 20)));
  config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 128;
  config["moe_intermediate_size"] = 96;
  const auto spec = must(parse_model_spec(config.dump(), "config.json"));
  check_says(bind_error(spec, directory_of(spec)),
             {"experts.0.down_proj has 96 columns", "groups of 128"});
}

double processor_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

#ifdef __SANITIZE_ADDRESS__
constexpr double kBindS = 10;
#else
constexpr double kBindS = 1;
#endif

TEST_CASE("the 90,000 tensors of DeepSeek-V3 are bound within a second") {
  const auto text =
      must(read_text_file(source_path("tests/model/published/deepseek-v3.json"), 1u << 20));
  const auto spec = must(parse_model_spec(text, "config.json"));
  auto directory = directory_of(spec);
  CHECK(directory.entries().size() > 90'000);
  const double before = processor_s();
  const auto bound = must(bind_spec(spec, directory));
  const double took = processor_s() - before;
  MESSAGE("bound in " << took << " s");
  CHECK(took < kBindS);
  CHECK(bound.num_layers() == 61);
  CHECK(directory.find("model.layers.60.mlp.experts.255.down_proj.weight")->split ==
        StoredAxis::kColumns);
}

}  // namespace
}  // namespace troupe
