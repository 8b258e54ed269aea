// Configs as they are published: their specs name as many bytes as the published weights have.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "model/json_reader.h"
#include "model/spec/read_spec.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "model/spec/stored_parts.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using testing::must;
using testing::source_path;

ModelSpec published(const std::string& name) {
  const std::string file = "tests/model/published/" + name + ".json";
  auto text = must(read_text_file(source_path(file), 1u << 20));
  return must(parse_model_spec(text, name));
}

struct Amount {
  double numbers = 0, bytes = 0;
};

/// Of what is stored, without the tensor of a tied head, which is the embedding's.
void add(Amount& amount, const ModelSpec& spec, const WeightSpec& w, double times) {
  if (w.role == WeightRole::kHead && w.name == spec.first[0].name) return;
  // Two that share a tensor count it once.
  if (w.first_row > 0) return;
  amount.numbers += times * static_cast<double>(w.n * w.k * w.row_step);
  for (const StoredPart& part : stored_parts(w)) {
    double numbers = 1;
    for (const auto dim : part.shape) numbers *= static_cast<double>(dim);
    if (w.stacked > 0) numbers /= w.stacked;
    const bool plain = w.format == StoredFormat::kPlain;
    const DType dtype = part.kind == PartKind::kScales || plain ? w.dtype : part.dtypes[0];
    amount.bytes += times * numbers * static_cast<double>(dtype_size(dtype));
  }
}

Amount stored(const ModelSpec& spec) {
  Amount amount;
  for (const auto& w : spec.first) add(amount, spec, w, 1);
  for (const auto& w : spec.last) add(amount, spec, w, 1);
  for (const auto& layer : spec.layers) {
    for (const auto& w : layer.weights) add(amount, spec, w, 1);
    for (const auto& w : layer.expert) add(amount, spec, w, layer.experts.gate.experts);
  }
  return amount;
}

TEST_CASE("the published models have the size that is published") {
  struct Case {
    const char* name;
    double billions;  ///< of parameters, as the model's card or report says
    double bytes;     ///< of all tensors, total_size of the index; 0: it counts more than is loaded
  };
  const Case cases[] = {
      {"deepseek-v2-lite", 15.7, 31412968448},
      {"deepseek-v3", 671, 0},
      {"deepseek-r1", 671, 0},
      {"deepseek-v3.1", 671, 0},
      {"kimi-k2-base", 1026, 0},
      {"kimi-k2-thinking", 1026, 0},
      {"llama-3.1-8b", 8.03, 16060522496},
      {"llama-3.1-70b", 70.6, 141107412992},
      {"r1-distill-qwen-1.5b", 1.78, 3554176000},
      {"r1-distill-qwen-7b", 7.62, 15231233024},
      {"r1-distill-qwen-14b", 14.8, 29540067328},
      {"r1-distill-qwen-32b", 32.8, 65527752704},
      {"qwen3-0.6b", 0.6, 0},
      {"qwen3-1.7b", 1.72, 0},
      {"qwen3-4b", 4.02, 8044936192},
      {"qwen3-8b", 8.19, 16381470720},
      {"qwen3-14b", 14.8, 29536614400},
      {"qwen3-32b", 32.8, 65524246528},
      {"qwen3-30b-a3b", 30.5, 61064245248},
      {"qwen3-235b-a22b", 235, 470187269120},
      {"glm-4.5", 355, 0},
      {"glm-4.6", 355, 0},
      {"glm-4.5-air", 106, 0},
      {"gpt-oss-20b", 20.9, 13761264768},
      {"gpt-oss-120b", 116.8, 65248815744},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    const ModelSpec spec = published(c.name);
    const Amount amount = stored(spec);
    CHECK(std::abs(amount.numbers / (c.billions * 1e9) - 1) < 0.01);
    if (c.bytes > 0) CHECK(amount.bytes == c.bytes);
    // A tied head is held beside the embedding.
    if (spec.last.back().name == spec.first[0].name) continue;
    const auto held = static_cast<double>(model_bytes(spec, Numerics::kBf16));
    CHECK(std::abs(held / amount.bytes - 1) < 0.01);
  }
}

TEST_CASE("what plans count on holds for every tensor-parallel rank, and for none too much") {
  for (const char* name : {"deepseek-v3", "gpt-oss-120b", "llama-3.1-8b"}) {
    CAPTURE(std::string(name));
    ModelSpec whole = published(name);
    whole.vocab += 5;  // so that ranks differ
    for (auto* ends : {&whole.first, &whole.last})
      for (WeightSpec& w : *ends)
        if (w.role == WeightRole::kEmbedding || w.role == WeightRole::kHead) w.n += 5;
    const ModelCosts alone = model_costs(whole, Numerics::kBf16);
    const auto bytes_of = [&](const ModelCosts& costs) {
      std::uint64_t bytes = costs.embedding_bytes + costs.head_bytes;
      for (const LayerCosts& layer : costs.layers) bytes += layer.bytes;
      return bytes;
    };
    std::uint64_t before = bytes_of(alone) + 1;
    for (const std::uint32_t size : {1u, 2u, 4u, 8u}) {
      CAPTURE(size);
      const std::vector<ModelSpec> ranks = split_into(whole, size);
      REQUIRE(ranks.size() == size);
      const ModelCosts costs = model_costs(ranks, Numerics::kBf16);
      std::uint64_t largest = 0, all = 0;
      for (const ModelSpec& rank : ranks) {
        const auto bytes = shard_bytes(rank, Numerics::kBf16, 0, rank.num_layers() - 1);
        largest = std::max(largest, bytes);
        all += bytes;
        CHECK(kv_bytes_per_token_layer(rank, Numerics::kBf16) <= costs.kv_bytes_per_token_layer);
        for (std::int32_t layer = 0; layer < rank.num_layers(); ++layer)
          CHECK(layer_bytes(rank, Numerics::kBf16, layer) <=
                costs.layers[static_cast<std::size_t>(layer)].bytes);
      }
      CHECK(bytes_of(costs) >= largest);
      CHECK(bytes_of(costs) < largest + largest / 100);
      CHECK(all >= bytes_of(alone));
      CHECK(bytes_of(costs) < before);  // each is smaller than those of fewer
      before = bytes_of(costs);
      CHECK(costs.expert_bytes == alone.expert_bytes);
      CHECK(costs.num_experts == alone.num_experts);
    }
  }
}

}  // namespace
}  // namespace troupe
