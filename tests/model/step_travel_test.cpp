#include "model/step_travel.h"

#include <doctest/doctest.h>

#include "runtime/limits.h"

namespace troupe::testing {
namespace {

ModelConfig deepseek_v3() {
  ModelConfig config;
  config.hidden_size = 7168;
  config.num_experts = 256;
  config.top_k = 8;
  return config;
}

TEST_CASE("a row is as wide as the largest message makes it") {
  ModelConfig config = deepseek_v3();
  CHECK(step_row_bytes(config, Numerics::kAmxBf16) == 7168u * 8 * 2);
  CHECK(step_row_bytes(config, Numerics::kReference) == 7168u * 8 * 4);
  config.num_experts = 0;
  CHECK(step_row_bytes(config, Numerics::kAmxBf16) == 7168u * 4);
}

TEST_CASE("what can never travel is said before anything is loaded") {
  ModelConfig config = deepseek_v3();
  EngineOptions engine;
  CHECK(check_steps_travel(config, engine, 163840).ok());
  engine.block_size = 1;
  CHECK(check_steps_travel(config, engine, limits::kStepBlocksMax).ok());
  const Status blocks = check_steps_travel(config, engine, limits::kStepBlocksMax + 1);
  REQUIRE(!blocks.ok());
  CHECK(blocks.error().message.find("--block-size") != std::string::npos);

  config.hidden_size = 1 << 24;
  config.top_k = 64;
  const Status wide = check_steps_travel(config, engine, 4096);
  REQUIRE(!wide.ok());
  CHECK(wide.error().message.find("too wide") != std::string::npos);
}

}  // namespace
}  // namespace troupe::testing
