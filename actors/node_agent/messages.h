#pragma once

#include <memory>
#include <string>

#include "actors/interfaces.h"
#include "model/expert_set.h"

/// What a NodeAgent's own jobs tell it; a WeightSource (actors/worker) runs them.
namespace troupe {

class ModelSizes;  // actors/worker/model_sizes.h
struct ShardWeights;

/// What is in the checkpoint's folder.
struct InspectedCheckpoint {
  std::string hash;
  std::shared_ptr<const ModelSizes> sizes;
  std::string folder;
};
/// Its job -> NodeAgent: the checkpoint has been inspected.
struct CheckpointInspected {
  Result<InspectedCheckpoint> checkpoint;
};

/// Its job -> NodeAgent: one piece of an order is in memory: an expert, or a range of layers.
struct PieceRead {
  Numerics numerics = Numerics::kReference;
  ExpertKey expert;
  LayerRange layers;
  bool is_expert = true;
  std::shared_ptr<const ExpertWeights> expert_weights;  ///< null in the simulation, as the next
  std::shared_ptr<const ShardWeights> shard_weights;
};
/// Its job -> NodeAgent: an order is done, or failed: then the error names the file and the tensor.
/// Not told of an order that was superseded.
struct PartRead {
  PlacementVersion version;
  bool tier = false;
  Status status;
};

struct Preparation;
/// Its job -> NodeAgent: what a version starts has been built, or could not be.
struct PartBuilt {
  std::shared_ptr<Preparation> preparation;
  Status status;
};

}  // namespace troupe
