#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/interfaces.h"
#include "model/expert_set.h"

/// What a NodeAgent's own jobs tell it; a WeightSource (actors/worker) runs them.
namespace troupe {

class ModelSizes;  // actors/worker/model_sizes.h
struct HeldTensor;  // model/weights.h
struct ShardWeights;
/// A piece's tensors, which know what they were when they were read. Keeps the piece alive.
using PieceTensors = std::shared_ptr<const std::vector<HeldTensor>>;

/// What is in the checkpoint's folder.
struct InspectedCheckpoint {
  std::string hash;
  std::shared_ptr<const ModelSizes> sizes;
  std::string folder;
};
/// Its job -> NodeAgent: the checkpoint in that folder has been inspected.
struct CheckpointInspected {
  std::string folder;
  Result<InspectedCheckpoint> checkpoint;
};

/// Its job -> NodeAgent: one piece of an order is in memory: an expert, or a range of layers.
struct PieceRead {
  Numerics numerics = Numerics::kReference;
  ExpertKey expert;
  LayerRange layers;
  bool is_expert = true;
  std::shared_ptr<const ExpertWeights> expert_weights;  ///< the one or the other
  std::shared_ptr<const ShardWeights> shard_weights;
  PieceTensors tensors = {};
  std::optional<std::uint32_t> place = {};  ///< the device in whose memory it is; none: the host's
};
/// Its job -> NodeAgent: a file of the checkpoint is not the one that was opened. It is opened
/// afresh; what is read of it from now on says what it is.
struct FilesChanged {
  std::string why;
};
/// Its job -> NodeAgent: an order is done, or failed: then the error names the file and the tensor.
/// Not told of an order that was superseded.
struct PartRead {
  PlacementVersion version;
  bool tier = false;
  Status status;
};

/// Its job -> NodeAgent: tensors were read again, past the page cache, or could not be.
struct ProofsRead {
  TensorProofs proofs;
};
/// Its job -> NodeAgent: a piece in memory is not what it was when it was read.
struct CopyDiffers {
  PieceTensors piece;
  ProofFailed proof;
};
/// Its job -> NodeAgent: all pieces in memory have been looked at again.
struct CopiesProven {};

struct Preparation;
/// Its job -> NodeAgent: what a version starts has been built, or could not be.
struct PartBuilt {
  std::shared_ptr<Preparation> preparation;
  Status status;
};

}  // namespace troupe
