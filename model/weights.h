#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gated_mlp.h"
#include "kernels/weight.h"
#include "model/checkpoint.h"
#include "model/held_tensor.h"
#include "model/spec/model_spec.h"
#include "model/spec/split_model.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// A layer without its routed experts. kGate, kUp and kDown lie in `mlp`; kKvB as kUk and kUv, a
/// group each head.
struct LayerWeights {
  std::array<kernels::Weight, kWeightRoles> by_role;
  kernels::GatedMlp mlp;  ///< the dense MLP, or the shared experts; its weights may be empty

  bool has(WeightRole role) const { return !by_role[static_cast<std::size_t>(role)].empty(); }
  const kernels::Weight& at(WeightRole role) const {
    assert(has(role));
    return by_role[static_cast<std::size_t>(role)];
  }
  /// A vector's numbers; null when the layer has none of this role.
  const float* vector(WeightRole role) const {
    return has(role) ? kernels::vector_of(at(role)) : nullptr;
  }
  bool has_mlp() const { return !mlp.gate.empty(); }
};

/// Layers [first, last] of a model, the last one included.
struct ShardWeights {
  std::int32_t first = 0, last = 0;
  std::vector<LayerWeights> layers;
  kernels::Weight embedding;         ///< with the first layer of the model
  kernels::Weight final_norm, head;  ///< with its last one
  HeldTensors tensors;               ///< all of the above
  kernels::Accelerator* device = nullptr;  ///< in whose memory they are; null: the host's
};

/// One routed expert.
struct ExpertWeights {
  kernels::GatedMlp mlp;
  HeldTensors tensors;
  kernels::Accelerator* device = nullptr;  ///< as ShardWeights have it
};

/// Asked every MiB or so: whether what is being read is still wanted. Empty: it is.
using ReadGoesOn = std::function<bool()>;

/// What whoever reads weights brings along.
struct Reading {
  ReadGoesOn goes_on = {};
  Buffer* room = nullptr;  ///< for rows as they are stored, kept from call to call: one a thread
  /// Where what was packed goes, an expert or a layer at a time; null: it stays on the host.
  std::shared_ptr<kernels::Accelerator> device = nullptr;
};

/// Reads and packs what a tensor-parallel rank has of the layers [first, last], the last one
/// included, without their routed experts; with the model's ends if they are among them. Each
/// tensor is read once. It is done in parts, which threads may share.
class ShardLoader {
 public:
  static Result<std::unique_ptr<ShardLoader>> begin(const Checkpoint& checkpoint, Numerics numerics,
                                                    std::int32_t first, std::int32_t last,
                                                    TensorRank rank = {});

  std::size_t parts() const { return parts_.size(); }
  /// Each once, all to the same device.
  Status load(std::size_t part, const Reading& reading);
  /// After all parts.
  std::shared_ptr<const ShardWeights> take();

 private:
  /// One end of the model, or a layer.
  struct Part {
    const std::vector<WeightSpec>& weights;
    LayerWeights* layer = nullptr;
    HeldTensors tensors = {};
  };
  ShardLoader(const Checkpoint& checkpoint, Numerics numerics, TensorRank rank)
      : checkpoint_(checkpoint), spec_(split_model(checkpoint.spec(), rank)), numerics_(numerics) {}

  const Checkpoint& checkpoint_;
  const ModelSpec spec_;  ///< the rank's
  const Numerics numerics_;
  std::shared_ptr<ShardWeights> shard_ = std::make_shared<ShardWeights>();
  std::vector<Part> parts_;
};

/// All of its parts.
Result<std::shared_ptr<const ShardWeights>> load_shard(const Checkpoint& checkpoint,
                                                       Numerics numerics, std::int32_t first,
                                                       std::int32_t last,
                                                       const Reading& reading = {},
                                                       TensorRank rank = {});

/// Reads and packs one routed expert.
Result<std::shared_ptr<const ExpertWeights>> load_expert(const Checkpoint& checkpoint,
                                                         Numerics numerics, std::int32_t layer,
                                                         std::int32_t expert,
                                                         const Reading& reading = {});

}  // namespace troupe
