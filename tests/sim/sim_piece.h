#pragma once

#include <cstdint>
#include <memory>

#include "actors/node_agent/messages.h"
#include "model/weights.h"

namespace troupe::sim {

/// A piece of the model in the memory of a process. Its weights are one number, which everything
/// that is computed with them is spoilt by: 0 if they are the cluster's.
struct SimPiece {
  std::uint64_t number = 0;
  bool told = false;  ///< that it is not what it was
  ExpertWeights expert;
  ShardWeights shard;
};

/// What a disk gives for it: `piece`, with its only tensor.
std::shared_ptr<SimPiece> make_piece(const std::string& tensor, std::uint64_t revision,
                                     PieceRead& read);
/// Whether it still is what it was when it was read.
bool holds(const SimPiece& piece);
/// The number of weights that were made so.
std::uint64_t number_of(const HeldTensors& tensors);

}  // namespace troupe::sim
