#include "model/placed_weights.h"

#include <map>
#include <utility>
#include <vector>

#include "runtime/limits.h"

namespace troupe {
namespace {

using kernels::Accelerator;
using kernels::GatedMlp;
using kernels::Weight;

/// Weights, and where they are to be.
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

  /// `source`: whose memory they are in; null: the host's.
  void place(Accelerator* source, Accelerator& device) {
    if (all_.empty()) return;
    const auto memory = device.memory(bytes_, limits::kDeviceMemoryPatience);
    for (const Item& item : all_) {
      std::byte* const there = memory.get() + item.at;
      const auto from = item.from->memory();
      if (source == nullptr)
        device.upload(there, from);
      else
        device.upload_from(there, *source, from.data(), from.size());
      moved_[from.data()] = there;
      *item.to = item.from->placed({memory, there});
    }
  }

  /// After place(): has tensors tell of what is there.
  void follow(const std::shared_ptr<Accelerator>& device, HeldTensors& tensors) const {
    for (HeldTensor& tensor : tensors) {
      tensor.device = device;
      for (auto& part : tensor.memory) part = {moved_.at(part.data()), part.size()};
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
  std::map<const std::byte*, const std::byte*> moved_;
};

Status check(const HeldTensors& tensors) {
  for (const HeldTensor& tensor : tensors)
    if (is_as_packed(tensor, [] { return true; }) == false)
      return corrupt("what the device holds of " + tensor.proof.tensor +
                     " is not what was copied to it; its memory, or the way there, is at fault");
  return {};
}

template <class Weights>
Result<std::shared_ptr<const Weights>> finish(Placing& placing,
                                              const std::shared_ptr<Accelerator>& device,
                                              const Weights& from, std::shared_ptr<Weights> to) {
  placing.place(from.device, *device);
  to->device = device.get();
  to->tensors = from.tensors;
  placing.follow(device, to->tensors);
  if (const Status arrived = check(to->tensors); !arrived.ok()) return arrived.error();
  return std::shared_ptr<const Weights>(std::move(to));
}

}  // namespace

Status move_to(const std::shared_ptr<Accelerator>& device, std::span<Weight* const> weights,
               HeldTensors& tensors) {
  Placing placing;
  for (Weight* const weight : weights) placing.add(*weight, *weight);
  placing.place(nullptr, *device);
  placing.follow(device, tensors);
  return check(tensors);
}

Result<std::shared_ptr<const ShardWeights>> copy_to(const std::shared_ptr<Accelerator>& device,
                                                    const ShardWeights& weights) {
  auto there = std::make_shared<ShardWeights>();
  there->first = weights.first;
  there->last = weights.last;
  there->layers.resize(weights.layers.size());
  Placing all;
  all.add(weights.embedding, there->embedding);
  all.add(weights.final_norm, there->final_norm);
  all.add(weights.head, there->head);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    for (std::size_t role = 0; role < kWeightRoles; ++role)
      all.add(weights.layers[i].by_role[role], there->layers[i].by_role[role]);
    all.add(weights.layers[i].mlp, there->layers[i].mlp);
  }
  return finish(all, device, weights, std::move(there));
}

Result<std::shared_ptr<const ExpertWeights>> copy_to(const std::shared_ptr<Accelerator>& device,
                                                     const ExpertWeights& weights) {
  auto there = std::make_shared<ExpertWeights>();
  Placing all;
  all.add(weights.mlp, there->mlp);
  return finish(all, device, weights, std::move(there));
}

}  // namespace troupe
