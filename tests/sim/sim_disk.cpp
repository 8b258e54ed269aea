#include "tests/sim/sim_disk.h"

#include "actors/worker/preparation.h"
#include "model/weights.h"
#include "tests/sim/fake_model.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

/// What a slow disk's reads take, in what they usually do.
constexpr int kSlowness = 30;
/// How soon a read that hangs sees that the disk answers again.
constexpr Duration kLook = 50ms;
/// Within this time all that is held has been looked at again.
constexpr std::uint64_t kRoundMs = 2000;
/// The numbers of weights that are not the cluster's: a revision a machine. Two nodes with the same
/// other one would be two of three.
constexpr std::uint64_t kRevision = 77;

class Sizes final : public ModelSizes {
 public:
  std::uint64_t expert_bytes(Numerics) const override { return costs_.expert_bytes; }
  std::uint64_t shard_bytes(Numerics, const LayerRange& layers) const override {
    std::uint64_t bytes = layers.first == 0 ? costs_.embedding_bytes : 0;
    if (layers.last + 1 == kLayers) bytes += costs_.head_bytes;
    for (std::int32_t layer = layers.first; layer <= layers.last; ++layer)
      bytes += costs_.layers[static_cast<std::size_t>(layer)].bytes;
    return bytes;
  }
  std::uint64_t cache_bytes(Numerics, const LayerRange& layers, std::int32_t blocks,
                            std::int32_t block_size) const override {
    const auto positions = static_cast<std::uint64_t>(blocks) * static_cast<unsigned>(block_size);
    return positions * static_cast<unsigned>(layers.last - layers.first + 1) *
           costs_.kv_bytes_per_token_layer;
  }
  std::uint64_t row_bytes(Numerics, std::uint32_t) const override { return kRowBytes; }

 private:
  const ModelCosts costs_ = costs();
};

/// A piece's only tensor.
std::string tensor_of(const PieceRead& piece) {
  return piece.is_expert ? "expert." + std::to_string(piece.expert.layer) + "." +
                               std::to_string(piece.expert.expert)
                         : "layers." + std::to_string(piece.layers.first) + "." +
                               std::to_string(piece.layers.last);
}

}  // namespace

void SimDisk::inspect(const std::string& folder) {
  host_.later(host_.loop().pick_ms(0, 20), [this, folder] {
    host_.post().tell(agent_, CheckpointInspected{
                                  folder, InspectedCheckpoint{
                                              "hash", std::make_shared<const Sizes>(), folder}});
  });
}

/// What a superseded build had claimed is given back at once.
std::uint64_t SimDisk::begin_job() {
  building_.reset();
  return ++job_;
}

void SimDisk::read(ReadOrder order) {
  const auto shared = std::make_shared<const ReadOrder>(std::move(order));
  host_.later(host_.loop().pick_us(100, 2000),
              [this, job = begin_job(), shared] { next(job, shared, 0); });
}

void SimDisk::next(std::uint64_t job, const std::shared_ptr<const ReadOrder>& order,
                   std::size_t piece) {
  if (job != job_) return;
  if (piece == order->experts.size() + order->shards.size()) return end(*order, {});
  if (faults_.hanging > 0)
    return host_.later(kLook, [this, job, order, piece] { next(job, order, piece); });
  if (Status s = readable(); !s) return end(*order, std::move(s));
  const bool expert = piece < order->experts.size();
  const Duration time = (faults_.slow > 0 ? kSlowness : 1) *
                        (expert ? host_.loop().pick_us(300, 8000) : host_.loop().pick_ms(3, 60));
  host_.later(time, [this, job, order, piece, expert] {
    if (job != job_) return;
    PieceRead read;
    read.numerics = order->numerics;
    read.is_expert = expert;
    if (expert)
      read.expert = order->experts[piece];
    else
      read.layers = order->shards[piece - order->experts.size()];
    const std::string tensor = tensor_of(read);
    pieces_.push_back(make_piece(tensor, revision_of(tensor), read));
    host_.post().tell(agent_, std::move(read));
    next(job, order, piece + 1);
  });
}

Status SimDisk::readable() const {
  if (faults_.gone > 0) return not_found("The checkpoint's files are gone.");
  if (faults_.denied > 0) return refused("The checkpoint cannot be read: EACCES.");
  if (faults_.failing > 0 && host_.loop().chance(70))
    return unavailable("The file system hiccups.");
  return {};
}

std::uint64_t SimDisk::revision_of(const std::string& tensor) const {
  const bool odd = faults_.odd_tensors > 0 && std::hash<std::string>{}(tensor) % 4 == 0;
  return odd || faults_.revised > 0 ? kRevision + static_cast<unsigned>(host_.machine()) : 0;
}

void SimDisk::end(const ReadOrder& order, Status status) {
  host_.post().tell(agent_, PartRead{order.version, order.tier, std::move(status)});
}

void SimDisk::build(std::shared_ptr<Preparation> preparation) {
  const std::uint64_t job = begin_job();
  building_ = std::move(preparation);
  host_.later(host_.loop().pick_us(50, 3000), [this, job] {
    if (job != job_) return;
    Status built = building_->build();
    host_.post().tell(agent_, PartBuilt{std::exchange(building_, nullptr), std::move(built)});
  });
}

void SimDisk::prove(std::vector<std::string> tensors) {
  host_.later(host_.loop().pick_ms(1, 20), [this, tensors = std::move(tensors)] {
    if (faults_.hanging > 0) return prove(tensors);
    TensorProofs proofs{true, {}, {}};
    if (Status s = readable(); !s)
      proofs = {true, {}, s.error(), tensors};
    else
      for (const std::string& name : tensors)
        proofs.tensors.push_back(proof_of(name, revision_of(name)));
    host_.post().tell(agent_, ProofsRead{std::move(proofs)});
  });
}

// --- What is in memory --------------------------------------------------------------------------

void SimDisk::look(const std::weak_ptr<SimPiece>& held) {
  const auto piece = held.lock();
  if (!piece || holds(*piece) || std::exchange(piece->told, true)) return;
  const bool expert = !piece->expert.tensors.empty();
  const PieceTensors tensors(piece, expert ? &piece->expert.tensors : &piece->shard.tensors);
  const std::string& name = tensors->front().proof.tensor;
  host_.post().tell(agent_, CopyDiffers{tensors, {name, "a bit flipped", kRoundMs / 1000}});
}

void SimDisk::prove_copies() {
  host_.later(host_.loop().pick_ms(1, 20), [this] {
    for (const auto& piece : pieces_) look(piece);
    host_.post().tell(agent_, CopiesProven{});
  });
}

std::weak_ptr<const SimPiece> SimDisk::flip() {
  std::erase_if(pieces_, [](const auto& piece) { return piece.expired(); });
  if (pieces_.empty()) return {};
  const auto piece = pieces_[host_.loop().pick(0, pieces_.size() - 1)];
  piece.lock()->number ^= std::uint64_t{1} << host_.loop().pick(0, 63);
  host_.later(host_.loop().pick_ms(0, kRoundMs), [this, piece] { look(piece); });
  return piece;
}

void SimDisk::free(Garbage garbage) {
  host_.later(1ms, [garbage = std::move(garbage)]() mutable { garbage.clear(); });
}

}  // namespace troupe::sim
