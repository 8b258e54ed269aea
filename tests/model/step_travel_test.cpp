#include "model/step_travel.h"

#include <doctest/doctest.h>

#include "runtime/limits.h"

namespace troupe::testing {
namespace {

ModelSpec with_experts(std::int32_t hidden, std::int32_t top_k) {
  ModelSpec spec;
  spec.hidden = hidden;
  LayerSpec layer;
  layer.feed_forward = FeedForwardKind::kExperts;
  layer.experts.gate.experts = 256;
  layer.experts.gate.top_k = top_k;
  spec.layers.push_back(layer);
  return spec;
}

TEST_CASE("a row is as wide as the largest message makes it") {
  ModelSpec spec = with_experts(7168, 8);
  CHECK(step_row_bytes(spec, Numerics::kBf16, 1) == 7168u * 8 * 2);
  CHECK(step_row_bytes(spec, Numerics::kReference, 1) == 7168u * 8 * 4);
  // Ranks send their part of the sum with the outputs, and the outputs' numbers.
  CHECK(step_row_bytes(spec, Numerics::kBf16, 2) >= 7168u * (4 + 8 * 2) + 8 * 4);
  spec.layers[0].feed_forward = FeedForwardKind::kDense;
  CHECK(step_row_bytes(spec, Numerics::kBf16, 1) == 7168u * 4);
}

TEST_CASE("what can never travel is said before anything is loaded") {
  const ModelSpec spec = with_experts(7168, 8);
  EngineOptions engine;
  CHECK(check_steps_travel(spec, engine, 163840).ok());
  engine.block_size = 1;
  CHECK(check_steps_travel(spec, engine, limits::kStepBlocksMax).ok());
  const Status blocks = check_steps_travel(spec, engine, limits::kStepBlocksMax + 1);
  REQUIRE(!blocks.ok());
  CHECK(blocks.error().message.find("--block-size") != std::string::npos);

  const Status wide = check_steps_travel(with_experts(1 << 24, 64), engine, 4096);
  REQUIRE(!wide.ok());
  CHECK(wide.error().message.find("too wide") != std::string::npos);
}

}  // namespace
}  // namespace troupe::testing
