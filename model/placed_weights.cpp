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

using Moved = std::map<const std::byte*, const std::byte*>;

bool always() { return true; }
ReadGoesOn or_always(const ReadGoesOn& goes_on) { return goes_on ? goes_on : always; }

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

  /// To the device, from the memory of `source`; null: of the host. From then on `moved` knows
  /// where what was somewhere is.
  void place(Accelerator* source, Accelerator& device, const ReadGoesOn& goes_on,
             Moved& moved) const {
    if (all_.empty()) return;
    const auto memory = device.memory(bytes_, limits::kDeviceMemoryPatience, goes_on);
    for (const Item& item : all_) {
      std::byte* const there = memory.get() + item.at;
      const auto from = item.from->memory();
      if (source == nullptr)
        device.upload(there, from);
      else
        device.upload_from(there, *source, from.data(), from.size());
      moved[from.data()] = there;
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

/// Has tensors tell of what is there now, and looks whether it is.
Status follow(const Moved& moved, const std::shared_ptr<Accelerator>& device,
              const ReadGoesOn& goes_on, HeldTensors& tensors) {
  for (HeldTensor& tensor : tensors) {
    tensor.device = device;
    for (auto& part : tensor.memory) part = {moved.at(part.data()), part.size()};
    const auto arrived = is_as_packed(tensor, goes_on);
    if (!arrived)
      return device->has_failed() ? unavailable("The device has failed.")
                                  : cancelled("Nobody wants these weights any more.");
    if (!*arrived)
      return corrupt("what the device holds of " + tensor.proof.tensor +
                     " is not what was copied to it; its memory, or the way there, is at fault");
  }
  return {};
}

/// Copies weights by some placings.
template <class Weights>
Result<std::shared_ptr<const Weights>> copy(std::span<const Placing> placings,
                                            const std::shared_ptr<Accelerator>& device,
                                            const ReadGoesOn& wanted, const Weights& from,
                                            std::shared_ptr<Weights> to) {
  const ReadGoesOn goes_on = or_always(wanted);
  Moved moved;
  for (const Placing& placing : placings) {
    if (!goes_on()) return cancelled("Nobody wants these weights any more.");
    placing.place(from.device, *device, goes_on, moved);
  }
  to->device = device.get();
  to->tensors = from.tensors;
  if (const Status arrived = follow(moved, device, goes_on, to->tensors); !arrived.ok())
    return arrived.error();
  return std::shared_ptr<const Weights>(std::move(to));
}

}  // namespace

Status move_to(const std::shared_ptr<Accelerator>& device, std::span<Weight* const> weights,
               HeldTensors& tensors, const ReadGoesOn& wanted) {
  const ReadGoesOn goes_on = or_always(wanted);
  Placing placing;
  for (Weight* const weight : weights) placing.add(*weight, *weight);
  Moved moved;
  placing.place(nullptr, *device, goes_on, moved);
  return follow(moved, device, goes_on, tensors);
}

Result<std::shared_ptr<const ShardWeights>> copy_to(const std::shared_ptr<Accelerator>& device,
                                                    const ShardWeights& weights,
                                                    const ReadGoesOn& goes_on) {
  auto there = std::make_shared<ShardWeights>();
  there->first = weights.first;
  there->last = weights.last;
  there->layers.resize(weights.layers.size());
  std::vector<Placing> placings(weights.layers.size() + 1);
  Placing& ends = placings.back();
  ends.add(weights.embedding, there->embedding);
  ends.add(weights.final_norm, there->final_norm);
  ends.add(weights.head, there->head);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    for (std::size_t role = 0; role < kWeightRoles; ++role)
      placings[i].add(weights.layers[i].by_role[role], there->layers[i].by_role[role]);
    placings[i].add(weights.layers[i].mlp, there->layers[i].mlp);
  }
  return copy(placings, device, goes_on, weights, std::move(there));
}

Result<std::shared_ptr<const ExpertWeights>> copy_to(const std::shared_ptr<Accelerator>& device,
                                                     const ExpertWeights& weights,
                                                     const ReadGoesOn& goes_on) {
  auto there = std::make_shared<ExpertWeights>();
  Placing all;
  all.add(weights.mlp, there->mlp);
  return copy({&all, 1}, device, goes_on, weights, std::move(there));
}

}  // namespace troupe
