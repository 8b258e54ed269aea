#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/model/published_spec.h"
#include "tools/troupe/plan/fit.h"

namespace troupe::testing {

/// DeepSeek-V3 as AWQ checkpoints of it are published.
inline ModelSpec v3_awq() {
  auto config = nlohmann::json::parse(published_text("deepseek-v3"));
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4},
                                   {"group_size", 128},     {"version", "gemm"},
                                   {"zero_point", true},    {"modules_to_not_convert", nullptr}};
  return must(parse_model_spec(config.dump(), "v3-awq"));
}

/// With the default flags, but for --max-model-len, where it is given.
inline FitQuestion question(const ModelSpec& spec, const std::string& nodes,
                            std::int64_t max_model_len = 0) {
  FitQuestion q{spec, {}, must(parse_nodes(nodes))};
  q.engine.max_model_len = max_model_len > 0 ? max_model_len : spec.positions_max;
  q.engine.numerics = Numerics::kBf16;
  q.threads = 16;
  return q;
}

}  // namespace troupe::testing
