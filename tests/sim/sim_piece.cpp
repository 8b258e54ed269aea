#include "tests/sim/sim_piece.h"

#include <cstring>

#include "tests/sim/fake_model.h"

namespace troupe::sim {
namespace {

Digest digest_of(std::uint64_t number) { return {mix(number, 1), mix(number, 2)}; }

const HeldTensor& tensor_of(const SimPiece& piece) {
  return piece.expert.tensors.empty() ? piece.shard.tensors.front() : piece.expert.tensors.front();
}

}  // namespace

std::shared_ptr<SimPiece> make_piece(const std::string& tensor, std::uint64_t revision,
                                     PieceRead& read) {
  auto piece = std::make_shared<SimPiece>();
  piece->number = revision;
  HeldTensor held{proof_of(tensor, revision), {std::as_bytes(std::span(&piece->number, 1))}};
  held.proof.packed = digest_of(revision);
  HeldTensors& tensors = read.is_expert ? piece->expert.tensors : piece->shard.tensors;
  tensors.push_back(std::move(held));
  if (read.is_expert)
    read.expert_weights = {piece, &piece->expert};
  else
    read.shard_weights = {piece, &piece->shard};
  read.tensors = {piece, &tensors};
  return piece;
}

bool holds(const SimPiece& piece) {
  return tensor_of(piece).proof.packed == digest_of(piece.number);
}

std::uint64_t number_of(const HeldTensors& tensors) {
  std::uint64_t number = 0;
  std::memcpy(&number, tensors.front().memory.front().data(), sizeof number);
  return number;
}

}  // namespace troupe::sim
