// What a step reads and computes, beside figures that are known of DeepSeek-V3: 7168 wide, 128
// heads of 128 + 64, latents of 1536 and 512, 256 experts of 2048, FP8.

#include "model/cost/work.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/model/published_spec.h"

namespace troupe {
namespace {

using testing::published;

/// Bytes and operations of one weight of a layer: the difference that leaving it out makes.
struct Share {
  double mb = 0, gflop = 0;
};
Share share_of(ModelSpec spec, std::int32_t layer, const StepShape& step,
               const std::vector<WeightRole>& roles) {
  const CostOptions options{Numerics::kBf16, 1};
  const Work all = layer_work(spec, layer, step, options);
  auto& weights = spec.layers[static_cast<std::size_t>(layer)].weights;
  std::erase_if(weights, [&](const WeightSpec& w) {
    return std::find(roles.begin(), roles.end(), w.role) != roles.end();
  });
  const Work rest = layer_work(spec, layer, step, options);
  return {(all.weight_bytes() - rest.weight_bytes()) / 1e6,
          (all.operations() - rest.operations()) / 1e9};
}

TEST_CASE("bytes and operations of DeepSeek-V3's products, a layer") {
  const ModelSpec spec = published("deepseek-v3");
  struct Case {
    const char* what;
    std::vector<WeightRole> roles;
    std::int32_t layer;
    double mb, gflop_1, gflop_32, gflop_128;
  };
  const Case cases[] = {
      {"q_a and kv_a", {WeightRole::kQa, WeightRole::kKvA}, 3, 15.1, 0.030, 0.97, 3.9},
      {"q_b", {WeightRole::kQb}, 3, 37.7, 0.075, 2.4, 9.7},
      // 34 MB as bf16; held in FP8.
      {"W_UK and W_UV", {WeightRole::kKvB}, 3, 16.8, 0.034, 1.07, 4.3},
      {"o", {WeightRole::kO}, 3, 117.4, 0.235, 7.5, 30.1},
      {"gate", {WeightRole::kRouter}, 3, 3.67, 0.0037, 0.117, 0.47},
      {"shared", {WeightRole::kGate, WeightRole::kUp, WeightRole::kDown}, 3, 44.0, .088, 2.8, 11.3},
      {"dense", {WeightRole::kGate, WeightRole::kUp, WeightRole::kDown}, 0, 396.4, .793, 25.4, 101},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.what));
    for (const auto& [rows, gflop] :
         {std::pair{1, c.gflop_1}, {32, c.gflop_32}, {128, c.gflop_128}}) {
      const Share share = share_of(spec, c.layer, decode_step(rows, 4096), c.roles);
      CHECK(share.mb == doctest::Approx(c.mb).epsilon(0.01));
      CHECK(share.gflop == doctest::Approx(gflop).epsilon(0.015));
    }
  }
  const Work head = head_work(spec, decode_step(32, 4096), {Numerics::kBf16, 1});
  CHECK(head.weight_bytes() == doctest::Approx(1853e6).epsilon(0.001));
  CHECK(head.operations() == doctest::Approx(59.3e9).epsilon(0.001));
}

TEST_CASE("DeepSeek-V3's attention over 4,096 positions") {
  const ModelSpec spec = published("deepseek-v3");
  for (const auto& [rows, mb, gflop] :
       {std::tuple{1, 4.72, 1.14}, {32, 151.0, 36.5}, {128, 604.0, 146.0}}) {
    const Work work = layer_work(spec, 3, decode_step(rows, 4096), {Numerics::kBf16, 1});
    CHECK(work.attention.bytes / 1e6 == doctest::Approx(mb).epsilon(0.001));
    CHECK(work.attention.operations / 1e9 == doctest::Approx(gflop).epsilon(0.005));
  }
  // The cache in e4m3 is half of it, in float32 twice.
  CHECK(layer_work(spec, 3, decode_step(1, 4096), {Numerics::kBf16KvFp8, 1}).attention.bytes ==
        4096 * 576);
  CHECK(layer_work(spec, 3, decode_step(1, 4096), {Numerics::kReference, 1}).attention.bytes ==
        4096 * 576 * 4);
}

TEST_CASE("DeepSeek-V3's routed experts") {
  const ModelSpec spec = published("deepseek-v3");
  const Work work = expert_work(spec, 3, 16, 256, {Numerics::kBf16, 1});
  CHECK(work.weight_bytes() / 1e6 == doctest::Approx(705).epsilon(0.001));
  CHECK(work.operations() / 1e9 == doctest::Approx(22.5).epsilon(0.01));
  REQUIRE(work.products.size() == 1);
  CHECK(work.products[0].rows == 16);
  CHECK(work.products[0].matrices == 48);
  CHECK(to_string(work.products[0].kind) == "fp8");
  CHECK(expert_work(spec, 3, 0, 0, {Numerics::kBf16, 1}).bytes() == 0);
  // Ranks do not split it.
  CHECK(expert_work(spec, 3, 16, 256, {Numerics::kBf16, 8}).bytes() == work.bytes());
}

TEST_CASE("a token of DeepSeek-V3's prompts takes some 71 GFLOP of products") {
  const ModelSpec spec = published("deepseek-v3");
  const StepShape step = prompt_step(1000, 4000);
  Work work;
  for (std::int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    work.add(layer_work(spec, layer, step, {Numerics::kBf16, 1}));
    if (spec.layers[static_cast<std::size_t>(layer)].has_experts())
      work.add(expert_work(spec, layer, 256, 8000, {Numerics::kBf16, 1}));
  }
  CHECK((work.operations() - work.attention.operations) / 1e12 ==
        doctest::Approx(71).epsilon(0.02));
  // Absorbed: 279 kFLOP a layer for each pair of a row and a position that it sees.
  CHECK(work.attention.operations == doctest::Approx(278528.0 * 61 * 1000 * 2000.5));
  CHECK(work.attention.bytes == doctest::Approx(61.0 * 2500 * 576 * 2));
}

TEST_CASE("formats and kinds of products are the held ones") {
  struct Case {
    const char* name;
    std::vector<std::string> kinds;  ///< of layer 3 with its experts
  };
  for (const Case& c : {Case{"llama-3.1-8b", {"bf16"}},
                        {"deepseek-v3", {"bf16, full precision", "fp8", "fp8, full precision"}},
                        {"kimi-k2-thinking", {"bf16", "bf16, full precision", "int4"}},
                        {"gpt-oss-20b", {"bf16", "bf16, full precision", "fp4"}}}) {
    const ModelSpec spec = published(c.name);
    Work work = layer_work(spec, 3, decode_step(1, 100), {Numerics::kBf16, 1});
    work.add(expert_work(spec, 3, 2, 2, {Numerics::kBf16, 1}));
    std::vector<std::string> kinds;
    for (const ProductWork& p : work.products) kinds.push_back(to_string(p.kind));
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    CAPTURE(std::string(c.name));
    CHECK(kinds == c.kinds);
  }
}

TEST_CASE("a window bounds what is read and multiplied") {
  const ModelSpec spec = published("gpt-oss-20b");
  const Work windowed = layer_work(spec, 0, decode_step(1, 4096), {Numerics::kBf16, 1});
  const Work whole = layer_work(spec, 1, decode_step(1, 4096), {Numerics::kBf16, 1});
  CHECK(whole.attention.bytes == 32 * windowed.attention.bytes);
  CHECK(whole.attention.operations == 32 * windowed.attention.operations);
  CHECK(whole.attention.bytes == 4096 * 2 * 8 * 64 * 2);
}

TEST_CASE("ranks share what tensor parallelism splits") {
  const ModelSpec llama = published("llama-3.1-8b");
  const StepShape step = decode_step(4, 1000);
  const Work one = layer_work(llama, 0, step, {Numerics::kBf16, 1});
  const Work four = layer_work(llama, 0, step, {Numerics::kBf16, 4});
  CHECK(four.weight_bytes() * 4 == doctest::Approx(one.weight_bytes()));
  CHECK(four.operations() * 4 == doctest::Approx(one.operations()));
  CHECK(four.attention.bytes * 4 == one.attention.bytes);
  // Every rank of MLA has the whole cache, and its own part of the heads.
  const ModelSpec v3 = published("deepseek-v3");
  const Work whole = layer_work(v3, 3, step, {Numerics::kBf16, 1});
  const Work eighth = layer_work(v3, 3, step, {Numerics::kBf16, 8});
  CHECK(eighth.attention.bytes == whole.attention.bytes);
  CHECK(eighth.attention.operations * 8 == whole.attention.operations);
}

TEST_CASE("bytes over the wires") {
  const ModelSpec v3 = published("deepseek-v3");
  CHECK(wire_row_bytes(v3, Numerics::kBf16) == 14336);
  CHECK(wire_row_bytes(v3, Numerics::kReference) == 28672);
  CHECK(hidden_row_bytes(v3) == 28672);
  CHECK(reduce_bytes(v3, 10, 1) == 0);
  // Two sums a layer, of which each rank hands on a half twice.
  CHECK(reduce_bytes(v3, 10, 2) == 2 * 10 * 28672);
  CHECK(reduce_bytes(v3, 10, 8) == 2 * 10 * 28672 * 1.75);
}

TEST_CASE("steps") {
  const StepShape decode = decode_step(32, 4096);
  CHECK(decode.rows == 32);
  CHECK(decode.logit_rows == 32);
  // A prompt in chunks: half of it is before a row, and a chunk reads all up to its own end.
  const StepShape chunk = prompt_step(2048, 8192);
  CHECK(chunk.sequences == 1);
  CHECK(chunk.visible == 4096.5);
  CHECK(chunk.context == 5120);
  CHECK(chunk.logit_rows == 0.25);
  // Several prompts in one step.
  const StepShape many = prompt_step(2048, 512);
  CHECK(many.sequences == 4);
  CHECK(many.visible == 256.5);
  CHECK(many.context == 512);
  CHECK(many.logit_rows == 4);
  // The head is read by a quarter of the steps only.
  const ModelSpec v3 = published("deepseek-v3");
  const CostOptions options{Numerics::kBf16, 1};
  CHECK(head_work(v3, chunk, options).bytes() * 4 ==
        doctest::Approx(head_work(v3, decode, options).bytes()));
}

}  // namespace
}  // namespace troupe
