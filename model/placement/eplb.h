#pragma once

#include <cstdint>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// Layers times replicas, and entries of log2phy, of one plan: two hundred times the largest
/// published deployment (58 layers of 288 replicas). More is a mistake in the input, and would take
/// gigabytes.
inline constexpr std::int64_t kEplbEntriesMax = 1 << 22;

/// What the published balancer is asked, by its own names.
struct EplbInput {
  std::vector<std::vector<float>> weight;  ///< [layer][logical expert], its load: finite, >= 0
  std::int64_t num_replicas = 0;           ///< physical experts of a layer, a multiple of num_gpus
  std::int64_t num_groups = 0;             ///< gate groups of a layer
  std::int64_t num_nodes = 0;
  std::int64_t num_gpus = 0;  ///< of all nodes together
};

/// Replica p of a layer lies on GPU p / (num_replicas / num_gpus).
struct EplbPlan {
  std::vector<std::vector<std::int32_t>> phy2log;  ///< [layer][replica], the expert
  /// [layer][expert][most copies of any expert of any layer], the replica, or -1 where the expert
  /// has fewer.
  std::vector<std::vector<std::vector<std::int32_t>>> log2phy;
  std::vector<std::vector<std::int32_t>> logcnt;  ///< [layer][expert], its copies
};

/// DeepSeek's expert parallelism load balancer, rebalance_experts() of
/// https://github.com/deepseek-ai/EPLB/blob/main/eplb.py, equal to it number for number, run with
/// PyTorch on a processor: float32 arithmetic, sums in PyTorch's order (float_sum.h), the first of
/// equal minima and maxima, and equals sorted as libstdc++'s std::sort leaves them, which shows in
/// the ranks of an expert's copies.
///
/// Hierarchical where num_groups is a multiple of num_nodes: groups are packed to nodes, experts
/// replicated within a node, replicas packed to its GPUs. Otherwise global: one group, one node.
///
/// Errors: kInvalidArgument for what the published code asserts on, for weights that are negative
/// or not finite, and for sizes that are zero or absurd.
Result<EplbPlan> rebalance_experts(const EplbInput& input);

}  // namespace troupe
