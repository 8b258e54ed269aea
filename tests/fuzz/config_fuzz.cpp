// config.json and generation_config.json: any bytes give a configuration or an error.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config.h"
#include "model/generation_config.h"
#include "model/memory_estimate.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)troupe::parse_generation_config(text, "fuzz").ok();
  const auto config = troupe::parse_model_config(text, "fuzz");
  if (!config) return 0;
  // What was accepted is good enough to plan with.
  if (config->top_k > config->num_experts || config->qk_rope_head_dim % 2 != 0) std::abort();
  if (troupe::kv_bytes_per_token_layer(*config, troupe::Numerics::kReference) == 0) std::abort();
  return 0;
}
