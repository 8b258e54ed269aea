#include "model/weights.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "model/placed_weights.h"
#include "model/weight_loader.h"

namespace troupe {
namespace {

Error out_of_memory(const Checkpoint& checkpoint) {
  return resource_exhausted("loading weights from " + checkpoint.folder() +
                            " ran out of memory; give this worker less of the model");
}

/// Where a layer holds what has this role.
kernels::Weight& place_of(LayerWeights& layer, WeightRole role) {
  switch (role) {
    case WeightRole::kGate:
      return layer.mlp.gate;
    case WeightRole::kUp:
      return layer.mlp.up;
    case WeightRole::kDown:
      return layer.mlp.down;
    default:
      return layer.by_role[static_cast<std::size_t>(role)];
  }
}

kernels::Weight& place_of(kernels::GatedMlp& expert, WeightRole role) {
  switch (role) {
    case WeightRole::kExpertGate:
      return expert.gate;
    case WeightRole::kExpertUp:
      return expert.up;
    case WeightRole::kExpertDown:
      return expert.down;
    case WeightRole::kExpertGateBias:
      return expert.gate_bias;
    case WeightRole::kExpertUpBias:
      return expert.up_bias;
    default:
      assert(role == WeightRole::kExpertDownBias);
      return expert.down_bias;
  }
}

kernels::Weight& place_of(ShardWeights& shard, WeightRole role) {
  switch (role) {
    case WeightRole::kEmbedding:
      return shard.embedding;
    case WeightRole::kFinalNorm:
      return shard.final_norm;
    default:
      assert(role == WeightRole::kHead);
      return shard.head;
  }
}

/// Loads a list of weights, each into its place. These.
template <class Of>
std::vector<kernels::Weight*> load_into(WeightLoader& in, Of& of,
                                        const std::vector<WeightSpec>& weights,
                                        const AttentionSpec& attention = {},
                                        std::int32_t expert = 0) {
  std::vector<kernels::Weight*> loaded;
  in.load(weights, attention, expert, [&](WeightRole role, kernels::Weight weight) {
    loaded.push_back(&place_of(of, role));
    *loaded.back() = std::move(weight);
  });
  return loaded;
}

/// The head may be the embedding, packed otherwise.
void mark_second_forms(const ModelSpec& spec, HeldTensors& last) {
  for (HeldTensor& held : last)
    for (const WeightSpec& first : spec.first)
      if (held.proof.tensor == first.name) held.second_form = true;
}

}  // namespace

Result<std::unique_ptr<ShardLoader>> ShardLoader::begin(const Checkpoint& checkpoint,
                                                        Numerics numerics, std::int32_t first,
                                                        std::int32_t last, TensorRank rank) {
  const ModelSpec& spec = checkpoint.spec();
  if (first < 0 || first > last || last >= spec.num_layers())
    return invalid_argument("a shard needs a range of layers within the model's " +
                            std::to_string(spec.num_layers()) + ", but was asked for " +
                            std::to_string(first) + " to " + std::to_string(last));
  std::unique_ptr<ShardLoader> loader(new ShardLoader(checkpoint, numerics, rank));
  ShardWeights& shard = *loader->shard_;
  shard.first = first;
  shard.last = last;
  shard.layers.resize(static_cast<std::size_t>(last - first) + 1);
  const ModelSpec& own = loader->spec_;
  if (first == 0) loader->parts_.push_back({own.first});
  for (std::int32_t i = first; i <= last; ++i)
    loader->parts_.push_back({own.layers[static_cast<std::size_t>(i)].weights,
                              &shard.layers[static_cast<std::size_t>(i - first)]});
  if (last + 1 == own.num_layers()) loader->parts_.push_back({own.last});
  return loader;
}

Status ShardLoader::load(std::size_t index, const Reading& reading) {
  Part& part = parts_[index];
  try {
    Buffer own;
    WeightLoader in(checkpoint_, numerics_, reading.goes_on, reading.room ? *reading.room : own);
    std::vector<kernels::Weight*> loaded;
    if (part.layer) {
      const auto at = shard_->first + (part.layer - shard_->layers.data());
      loaded = load_into(in, *part.layer, part.weights,
                         spec_.layers[static_cast<std::size_t>(at)].attention);
    } else {
      loaded = load_into(in, *shard_, part.weights);
    }
    if (!in.status().ok()) return in.status();
    part.tensors = in.take_tensors();
    if (&part.weights == &spec_.last) mark_second_forms(spec_, part.tensors);
    return reading.device ? move_to(reading.device, loaded, part.tensors, reading.goes_on)
                          : Status();
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint_);
  }
}

std::shared_ptr<const ShardWeights> ShardLoader::take() {
  for (Part& part : parts_)
    for (HeldTensor& held : part.tensors) {
      if (held.device) shard_->device = held.device.get();
      shard_->tensors.push_back(std::move(held));
    }
  return std::move(shard_);
}

Result<std::shared_ptr<const ShardWeights>> load_shard(const Checkpoint& checkpoint,
                                                       Numerics numerics, std::int32_t first,
                                                       std::int32_t last, const Reading& reading,
                                                       TensorRank rank) {
  auto loader = ShardLoader::begin(checkpoint, numerics, first, last, rank);
  if (!loader) return loader.error();
  Buffer own;
  Reading each = reading;
  if (!each.room) each.room = &own;
  for (std::size_t part = 0; part < (*loader)->parts(); ++part)
    if (auto status = (*loader)->load(part, each); !status) return status.error();
  return (*loader)->take();
}

Result<std::shared_ptr<const ExpertWeights>> load_expert(const Checkpoint& checkpoint,
                                                         Numerics numerics, std::int32_t layer,
                                                         std::int32_t expert,
                                                         const Reading& reading) {
  Buffer own;
  const ModelSpec& spec = checkpoint.spec();
  const LayerSpec* of = layer >= 0 && layer < spec.num_layers()
                            ? &spec.layers[static_cast<std::size_t>(layer)]
                            : nullptr;
  if (!of || !of->has_experts() || expert < 0 || expert >= of->experts.gate.experts)
    return invalid_argument("layer " + std::to_string(layer) + " has no routed expert " +
                            std::to_string(expert));
  try {
    WeightLoader in(checkpoint, numerics, reading.goes_on, reading.room ? *reading.room : own);
    auto weights = std::make_shared<ExpertWeights>();
    const auto loaded = load_into(in, weights->mlp, of->expert, {}, expert);
    if (!in.status().ok()) return in.status().error();
    weights->tensors = in.take_tensors();
    if (reading.device) {
      weights->device = reading.device.get();
      const Status moved = move_to(reading.device, loaded, weights->tensors, reading.goes_on);
      if (!moved.ok()) return moved.error();
    }
    return std::shared_ptr<const ExpertWeights>(std::move(weights));
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint);
  }
}

}  // namespace troupe
