#include "model/placement/eplb.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include "model/placement/float_sum.h"

namespace troupe {
namespace {

using Index = std::size_t;
using Indices = std::vector<Index>;

struct Packing {
  Indices pack;  // of each item
  Indices rank;  // of each item in its pack
};

/// Heaviest first, each item to the lightest pack that has room; packs hold equally many.
Packing balanced_packing(const std::vector<float>& weight, Index packs) {
  const Index items = weight.size();
  const Index per_pack = items / packs;
  Packing result{Indices(items), Indices(items, 0)};
  std::iota(result.pack.begin(), result.pack.end(), Index{0});
  if (per_pack == 1) return result;
  Indices order(items);
  std::iota(order.begin(), order.end(), Index{0});
  // Not stable: PyTorch's sort() is libstdc++'s std::sort, whose order of equals the published
  // plans show in the ranks of an expert's copies.
  std::sort(order.begin(), order.end(), [&](Index a, Index b) { return weight[a] > weight[b]; });
  // Packs with room, the lightest on top, the first of equals: what a search through all finds.
  using Pack = std::pair<float, Index>;
  std::priority_queue<Pack, std::vector<Pack>, std::greater<>> open;
  for (Index p = 0; p < packs; ++p) open.push({0.0f, p});
  Indices filled(packs, 0);
  for (const Index item : order) {
    const auto [load, pack] = open.top();
    open.pop();
    result.pack[item] = pack;
    result.rank[item] = filled[pack]++;
    if (filled[pack] < per_pack) open.push({load + weight[item], pack});
  }
  return result;
}

struct Replication {
  Indices expert;  // of each replica
  Indices rank;    // of each replica among its expert's
  Indices count;   // replicas of each expert
};

/// Every expert once, then each further replica for the expert whose replicas are loaded most.
Replication replicate_experts(const std::vector<float>& weight, Index replicas) {
  const Index experts = weight.size();
  Replication result{Indices(replicas), Indices(replicas, 0), Indices(experts, 1)};
  std::iota(result.expert.begin(), result.expert.end(), Index{0});
  using Load = std::pair<float, Index>;
  const auto below = [](const Load& a, const Load& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::priority_queue<Load, std::vector<Load>, decltype(below)> loads(below);
  for (Index e = 0; e < experts; ++e) loads.push({weight[e], e});
  for (Index r = experts; r < replicas; ++r) {
    const Index expert = loads.top().second;
    loads.pop();
    result.expert[r] = expert;
    result.rank[r] = result.count[expert]++;
    loads.push({weight[expert] / static_cast<float>(result.count[expert]), expert});
  }
  return result;
}

struct Sizes {
  Index experts = 0, replicas = 0, groups = 0, nodes = 0, gpus = 0;
};

/// Physical experts of one layer, in their places.
struct LayerPlan {
  Indices expert, rank;  // of each physical expert
  Indices count;         // of each expert
};

/// Experts in the order of their nodes: the groups of a node follow each other.
Indices experts_by_node(const std::vector<float>& weight, const Sizes& sizes) {
  const Index group_size = sizes.experts / sizes.groups;
  std::vector<float> tokens(sizes.groups);
  for (Index g = 0; g < sizes.groups; ++g)
    tokens[g] = pytorch_sum(weight.data() + g * group_size, group_size);
  const Packing groups = balanced_packing(tokens, sizes.nodes);
  Indices order(sizes.experts);
  for (Index e = 0; e < sizes.experts; ++e) {
    const Index g = e / group_size;
    const Index place = groups.pack[g] * (sizes.groups / sizes.nodes) + groups.rank[g];
    order[place * group_size + e % group_size] = e;
  }
  return order;
}

LayerPlan plan_layer(const std::vector<float>& weight, const Sizes& sizes) {
  const Indices order = experts_by_node(weight, sizes);
  const Index node_experts = sizes.experts / sizes.nodes;
  const Index node_replicas = sizes.replicas / sizes.nodes;
  const Index gpu_replicas = sizes.replicas / sizes.gpus;
  LayerPlan plan{Indices(sizes.replicas), Indices(sizes.replicas), Indices(sizes.experts)};
  for (Index node = 0; node < sizes.nodes; ++node) {
    const Index* experts = order.data() + node * node_experts;
    std::vector<float> tokens(node_experts);
    for (Index i = 0; i < node_experts; ++i) tokens[i] = weight[experts[i]];
    const Replication replicas = replicate_experts(tokens, node_replicas);
    std::vector<float> shares(node_replicas);
    for (Index r = 0; r < node_replicas; ++r) {
      const Index i = replicas.expert[r];
      shares[r] = tokens[i] / static_cast<float>(replicas.count[i]);
    }
    const Packing gpus = balanced_packing(shares, sizes.gpus / sizes.nodes);
    for (Index r = 0; r < node_replicas; ++r) {
      const Index place = node * node_replicas + gpus.pack[r] * gpu_replicas + gpus.rank[r];
      plan.expert[place] = experts[replicas.expert[r]];
      plan.rank[place] = replicas.rank[r];
    }
    for (Index i = 0; i < node_experts; ++i) plan.count[experts[i]] = replicas.count[i];
  }
  return plan;
}

Status check_weights(const std::vector<std::vector<float>>& weight) {
  if (weight.empty() || weight[0].empty())
    return invalid_argument("weight needs at least one layer with at least one expert.");
  for (Index layer = 0; layer < weight.size(); ++layer) {
    if (weight[layer].size() != weight[0].size()) {
      return invalid_argument("Row " + std::to_string(layer) + " of weight has " +
                              std::to_string(weight[layer].size()) + " experts, row 0 has " +
                              std::to_string(weight[0].size()) + "; every layer needs as many.");
    }
    for (Index e = 0; e < weight[layer].size(); ++e) {
      if (std::isfinite(weight[layer][e]) && weight[layer][e] >= 0) continue;
      return invalid_argument("The weight of expert " + std::to_string(e) + " in row " +
                              std::to_string(layer) +
                              " must be a finite number that is not negative.");
    }
  }
  return {};
}

Error not_divisible(const std::string& what, std::int64_t a, const std::string& by,
                    std::int64_t b) {
  return invalid_argument(what + " (" + std::to_string(a) + ") must be a multiple of " + by + " (" +
                          std::to_string(b) + ").");
}

Status check_sizes(const EplbInput& in) {
  const auto layers = static_cast<std::int64_t>(in.weight.size());
  const auto experts = static_cast<std::int64_t>(in.weight[0].size());
  for (const auto& [name, value] :
       {std::pair{"num_replicas", in.num_replicas}, std::pair{"num_groups", in.num_groups},
        std::pair{"num_nodes", in.num_nodes}, std::pair{"num_gpus", in.num_gpus}}) {
    if (value < 1) {
      return invalid_argument(std::string(name) + " must be at least 1, not " +
                              std::to_string(value) + ".");
    }
  }
  if (in.num_replicas < experts) {
    return invalid_argument("num_replicas (" + std::to_string(in.num_replicas) +
                            ") must be at least the number of experts, " + std::to_string(experts) +
                            ", so that each has a place.");
  }
  if (in.num_replicas > kEplbEntriesMax / layers) {
    return invalid_argument("num_replicas (" + std::to_string(in.num_replicas) + ") times the " +
                            std::to_string(layers) + " layers of weight must be at most " +
                            std::to_string(kEplbEntriesMax) + ".");
  }
  if (in.num_replicas % in.num_gpus != 0)
    return not_divisible("num_replicas", in.num_replicas, "num_gpus", in.num_gpus);
  if (in.num_groups % in.num_nodes != 0) return {};  // global: groups and nodes do not matter
  if (in.num_gpus % in.num_nodes != 0)
    return not_divisible("num_gpus", in.num_gpus, "num_nodes", in.num_nodes);
  if (experts % in.num_groups != 0)
    return not_divisible("The number of experts", experts, "num_groups", in.num_groups);
  return {};
}

}  // namespace

Result<EplbPlan> rebalance_experts(const EplbInput& input) {
  if (Status s = check_weights(input.weight); !s) return s.error();
  if (Status s = check_sizes(input); !s) return s.error();
  const bool hierarchical = input.num_groups % input.num_nodes == 0;
  const Sizes sizes{input.weight[0].size(), static_cast<Index>(input.num_replicas),
                    hierarchical ? static_cast<Index>(input.num_groups) : 1,
                    hierarchical ? static_cast<Index>(input.num_nodes) : 1,
                    static_cast<Index>(input.num_gpus)};
  std::vector<LayerPlan> layers;
  Index most = 0;
  for (const auto& weight : input.weight) {
    layers.push_back(plan_layer(weight, sizes));
    const auto& count = layers.back().count;
    most = std::max(most, *std::max_element(count.begin(), count.end()));
  }
  if (most > static_cast<Index>(kEplbEntriesMax) / (sizes.experts * layers.size())) {
    return invalid_argument("The plan gives an expert " + std::to_string(most) +
                            " copies; log2phy would have more than " +
                            std::to_string(kEplbEntriesMax) + " entries.");
  }
  EplbPlan plan;
  for (const LayerPlan& layer : layers) {
    plan.phy2log.emplace_back(layer.expert.begin(), layer.expert.end());
    plan.logcnt.emplace_back(layer.count.begin(), layer.count.end());
    std::vector<std::vector<std::int32_t>> places(sizes.experts,
                                                  std::vector<std::int32_t>(most, -1));
    for (Index p = 0; p < sizes.replicas; ++p)
      places[layer.expert[p]][layer.rank[p]] = static_cast<std::int32_t>(p);
    plan.log2phy.push_back(std::move(places));
  }
  return plan;
}

}  // namespace troupe
