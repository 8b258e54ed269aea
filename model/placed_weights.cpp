#include "model/placed_weights.h"

#include <utility>
#include <vector>

namespace troupe {
namespace {

using kernels::Accelerator;
using kernels::GatedMlp;
using kernels::Weight;

/// Weights of a piece, and where their copies belong.
class Placing {
 public:
  void add(const Weight& from, Weight& to) {
    if (from.empty()) return;
    all_.push_back({&from, &to, bytes_});
    bytes_ += (from.bytes() + Accelerator::kAlignment - 1) / Accelerator::kAlignment *
              Accelerator::kAlignment;
  }
  void add(const GatedMlp& from, GatedMlp& to) {
    add(from.gate, to.gate);
    add(from.up, to.up);
    add(from.down, to.down);
    add(from.gate_bias, to.gate_bias);
    add(from.up_bias, to.up_bias);
    add(from.down_bias, to.down_bias);
  }
  void place(Accelerator& device) const {
    if (all_.empty()) return;
    const std::shared_ptr<std::byte> memory = device.memory(bytes_);
    for (const Item& item : all_) {
      std::byte* const there = memory.get() + item.at;
      device.upload(there, item.from->memory());
      *item.to = item.from->placed({memory, there});
    }
  }

 private:
  struct Item {
    const Weight* from;
    Weight* to;
    std::size_t at;
  };
  std::vector<Item> all_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::shared_ptr<const ShardWeights> placed(const ShardWeights& weights, Accelerator& device) {
  auto there = std::make_shared<ShardWeights>();
  there->first = weights.first;
  there->last = weights.last;
  there->layers.resize(weights.layers.size());
  Placing ends;
  ends.add(weights.embedding, there->embedding);
  ends.add(weights.final_norm, there->final_norm);
  ends.add(weights.head, there->head);
  ends.place(device);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    Placing layer;
    for (std::size_t role = 0; role < kWeightRoles; ++role)
      layer.add(weights.layers[i].by_role[role], there->layers[i].by_role[role]);
    layer.add(weights.layers[i].mlp, there->layers[i].mlp);
    layer.place(device);
  }
  return there;
}

std::shared_ptr<const ExpertWeights> placed(const ExpertWeights& weights, Accelerator& device) {
  auto there = std::make_shared<ExpertWeights>();
  Placing all;
  all.add(weights.mlp, there->mlp);
  all.place(device);
  return there;
}

}  // namespace troupe
