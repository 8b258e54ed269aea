#include "runtime/engine_options.h"

#include "runtime/limits.h"
#include "runtime/tensor_rank.h"

namespace troupe {
namespace {

Status in_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid_argument(std::string(flag) + " must be from " + std::to_string(least) + " to " +
                          std::to_string(most) + ", not " + std::to_string(value) + ".");
}

}  // namespace

Status check_tensor_size(std::int32_t size) {
  if (is_tensor_size(size)) return {};
  return invalid_argument("--tensor-parallel-size must be 1, 2, 4 or 8, not " +
                          std::to_string(size) + ".");
}

Status check(const EngineOptions& o) {
  const Status checks[] = {
      in_range("--max-model-len", o.max_model_len, 0, limits::kDimensionMax),
      in_range("--max-num-seqs", o.max_num_seqs, 1, 65536),
      in_range("--max-num-batched-tokens", o.max_num_batched_tokens, 1, 1 << 20),
      in_range("--block-size", o.block_size, 1, 4096),
      in_range("--request-timeout", o.request_timeout_s, 1, 7 * 24 * 3600),
      check_tensor_size(o.tensor_parallel_size),
      in_range("--pipeline-parallel-size", o.pipeline_parallel_size, 1, limits::kLayersMax),
      in_range("--data-parallel-size", o.data_parallel_size, 0, 1024),
      in_range("--redundant-experts", o.redundant_experts, 0, limits::kExpertsMax),
  };
  for (const Status& check : checks)
    if (!check.ok()) return check;
  return {};
}

}  // namespace troupe
