// config.json and generation_config.json: any bytes give a model or an error.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/generation_config.h"
#include "model/spec/read_spec.h"
#include "model/spec/sizes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)troupe::parse_generation_config(text, "fuzz");
  const auto spec = troupe::parse_model_spec(text, "fuzz");
  if (!spec) return 0;
  // What was accepted is good enough to plan with.
  if (spec->top_k() > spec->num_experts() || spec->rope.dim % 2 != 0) std::abort();
  const auto costs = troupe::model_costs(*spec, troupe::Numerics::kReference);
  if (costs.kv_bytes_per_token_layer == 0 || costs.layers.front().bytes == 0) std::abort();
  return 0;
}
