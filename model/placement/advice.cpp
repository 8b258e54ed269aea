#include "model/placement/advice.h"

#include <algorithm>
#include <vector>

namespace troupe {
namespace {

std::string sentence(const std::string& raise, const std::vector<std::string>& lower) {
  std::string text = "Add devices or memory";
  if (!raise.empty()) text += (lower.empty() ? ", or raise " : ", raise ") + raise;
  for (std::size_t i = 0; i < lower.size(); ++i)
    text += (i == 0 ? ", or lower " : i + 1 < lower.size() ? ", " : " or ") + lower[i];
  return text + ".";
}

}  // namespace

std::string advice_for_experts(const EngineOptions& engine) {
  if (engine.redundant_experts == 0) return sentence("", {});
  return sentence("", {"--redundant-experts"});
}

std::string advice_for_shards(const EngineOptions& engine, const ShardNeed& need) {
  std::vector<std::string> lower;
  if (engine.kv_cache_memory > need.sequence_bytes && engine.kv_cache_memory > need.lacking)
    lower.push_back("--kv-cache-memory");
  if (engine.max_model_len > engine.block_size &&
      std::max(engine.kv_cache_memory, need.sequence_bytes) > need.lacking)
    lower.push_back("--max-model-len");
  if (engine.data_parallel_size > 1) lower.push_back("--data-parallel-size");
  if (engine.redundant_experts > 0) lower.push_back("--redundant-experts");
  const bool can_be_cut = engine.pipeline_parallel_size < static_cast<std::int64_t>(need.layers);
  return sentence(can_be_cut ? "--pipeline-parallel-size" : "", lower);
}

}  // namespace troupe
