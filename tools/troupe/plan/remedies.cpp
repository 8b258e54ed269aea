#include "tools/troupe/plan/remedies.h"

#include <algorithm>
#include <functional>
#include <string>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// They are sought up to so many times what there is.
constexpr std::int64_t kMoreMax = 64;
constexpr std::int64_t kLengthStep = 1024;

/// The least count above `from` that fits, if one up to `to` does; what fits goes on fitting.
std::optional<std::int64_t> least_that(std::int64_t from, std::int64_t to,
                                       const std::function<bool(std::int64_t)>& good) {
  std::int64_t low = from, high = from;
  do {
    if (high >= to) return std::nullopt;
    low = high;
    high = std::min(to, high + std::max<std::int64_t>(1, high));
  } while (!good(high));
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (good(middle) ? high : low) = middle;
  }
  return high;
}

void try_nodes(const FitQuestion& q, std::vector<Remedy>& remedies) {
  FitQuestion tried = q;
  NodeGroup& last = tried.nodes.back();
  const std::int64_t others = node_count(q.nodes) - last.nodes;
  const std::int64_t most = std::min({last.nodes * kMoreMax, kPlanDevicesMax / last.devices,
                                      static_cast<std::int64_t>(limits::kNodesMax) - others});
  const auto nodes = least_that(last.nodes, most, [&](std::int64_t count) {
    last.nodes = count;
    return fewest_stages(tried).ok();
  });
  if (!nodes) return;
  last.nodes = *nodes;
  remedies.push_back({"--nodes", to_string(tried.nodes)});
}

/// The memory of all devices that have less, whole GiB.
void try_memory(const FitQuestion& q, std::vector<Remedy>& remedies) {
  FitQuestion tried = q;
  const auto give = [&](std::int64_t gib) {
    tried.nodes = q.nodes;
    for (NodeGroup& g : tried.nodes)
      if (g.device.empty()) g.memory = std::max(g.memory, static_cast<std::uint64_t>(gib) << 30);
    return fewest_stages(tried).ok();
  };
  std::uint64_t least = kDeviceBytesMax;
  for (const NodeGroup& g : q.nodes)
    if (g.device.empty()) least = std::min(least, g.memory);
  if (least == kDeviceBytesMax) return;
  const auto from = static_cast<std::int64_t>(least >> 30);
  const auto gib = least_that(from, std::max<std::int64_t>(from, 1) * kMoreMax, give);
  if (!gib) return;
  (void)give(*gib);
  remedies.push_back({"--nodes", to_string(tried.nodes)});
}

void try_length(const FitQuestion& q, std::vector<Remedy>& remedies) {
  FitQuestion tried = q;
  const auto with = [&](std::int64_t steps) {
    tried.engine.max_model_len = steps * kLengthStep;
    return fewest_stages(tried).ok();
  };
  std::int64_t low = 1, high = (q.engine.max_model_len - 1) / kLengthStep;
  if (high < 1 || !with(low)) return;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (with(middle))
      low = middle;
    else
      high = middle - 1;
  }
  remedies.push_back({"--max-model-len", std::to_string(low * kLengthStep)});
}

/// The cache nearest to what was asked for. Whether that is more: what lacks are no devices then.
bool try_cache(const FitQuestion& q, std::vector<Remedy>& remedies) {
  FitQuestion tried = q;
  tried.engine.kv_cache_memory = 0;
  const auto fit = fewest_stages(tried);
  if (!fit) return false;
  tried.choose_pipeline = false;
  tried.engine.pipeline_parallel_size = fit->engine.pipeline_parallel_size;
  const auto with = [&](std::int64_t mib) {
    tried.engine.kv_cache_memory = static_cast<std::uint64_t>(mib) << 20;
    return fewest_stages(tried).ok();
  };
  const std::int64_t block = q.engine.block_size;
  const auto sequence_blocks =
      static_cast<std::uint64_t>((q.engine.max_model_len + block - 1) / block);
  const std::uint64_t least = fit->kv_block_bytes * sequence_blocks;  // a cache holds one sequence
  auto low = static_cast<std::int64_t>((least + (1u << 20) - 1) >> 20);
  auto high = static_cast<std::int64_t>(q.engine.kv_cache_memory >> 20) - 1;
  const bool fits = with(low);
  while (fits && low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (with(middle))
      low = middle;
    else
      high = middle - 1;
  }
  const auto bytes = fits ? static_cast<std::uint64_t>(low) << 20 : 0;
  remedies.push_back({"--kv-cache-memory", exact_byte_size(bytes)});
  return q.engine.kv_cache_memory < least;
}

}  // namespace

std::vector<Remedy> find_remedies(const FitQuestion& q) {
  std::vector<Remedy> remedies;
  const auto try_with = [&](const char* flag, const std::string& value, auto&& change) {
    FitQuestion tried = q;
    change(tried);
    if (fewest_stages(tried)) remedies.push_back({flag, value});
  };
  try_length(q, remedies);
  const Numerics numerics = *q.engine.numerics;
  if (kv_type(numerics) == DType::kBf16)
    try_with("--kv-cache-dtype", "fp8",
             [&](FitQuestion& t) { t.engine.numerics = with_kv_fp8(numerics); });
  if (q.engine.redundant_experts > 0)
    try_with("--redundant-experts", "0", [](FitQuestion& t) { t.engine.redundant_experts = 0; });
  if (q.engine.data_parallel_size > 1)
    try_with("--data-parallel-size", "1", [](FitQuestion& t) { t.engine.data_parallel_size = 1; });
  const bool cache_is_small = q.engine.kv_cache_memory > 0 && try_cache(q, remedies);
  if (!q.choose_pipeline) {
    FitQuestion tried = q;
    tried.choose_pipeline = true;
    if (const auto stages = fewest_stages(tried))
      remedies.push_back(
          {"--pipeline-parallel-size", std::to_string(stages->engine.pipeline_parallel_size)});
  }
  if (cache_is_small) return remedies;
  try_nodes(q, remedies);
  try_memory(q, remedies);
  return remedies;
}

}  // namespace troupe
