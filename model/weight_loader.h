#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/weight.h"
#include "model/spec/stored_parts.h"
#include "model/tensor_reader.h"
#include "model/weights.h"

namespace troupe {

/// Reads and packs weights, keeping the first error, so that a caller reads as a list. It knows the
/// formats, and no tensor's name.
class WeightLoader {
 public:
  using Place = std::function<void(WeightRole role, kernels::Weight weight)>;
  /// What the codes of a tensor are scaled with, in rows as they are.
  struct Side {
    Buffer scales;
    std::vector<std::uint8_t> zeros;
  };

  /// `room` is for rows as they are stored, kept from one loader to the next: one a thread.
  WeightLoader(const Checkpoint& checkpoint, Numerics numerics, const ReadGoesOn& goes_on,
               Buffer& room)
      : checkpoint_(checkpoint), numerics_(numerics), goes_on_(goes_on), room_(room) {}

  /// All weights of a list, in its order. What each becomes is handed out.
  void load(std::span<const WeightSpec> weights, const AttentionSpec& attention,
            std::int32_t expert, const Place& place);

  const Status& status() const { return status_; }
  /// What was read, in order.
  HeldTensors take_tensors() { return std::move(tensors_); }

 private:
  using Packed = std::vector<std::pair<WeightRole, kernels::Weight>>;
  using TakeRows = std::function<Status(const std::byte* rows, std::int64_t count)>;
  Packed load_tensor(std::span<const WeightSpec> weights, const AttentionSpec& attention,
                     std::int32_t expert);
  Status read_side(const WeightSpec& weight, PartKind kind, TensorReader& in, Side& side);
  Status pack_rows(std::span<const WeightSpec> weights, TensorReader& codes, const Side& side,
                   Packed& packed);
  Status pack_heads(const WeightSpec& weight, const AttentionSpec& attention, TensorReader& codes,
                    const Side& side, Packed& packed);
  Status pack_vectors(std::span<const WeightSpec> weights, TensorReader& numbers, Packed& packed);

  Result<Buffer> read_whole(TensorReader& in);
  /// Hands out the weight's rows of codes, `granule` of them or a multiple at a time.
  Status each_piece(const WeightSpec& weight, TensorReader& in, std::int64_t granule,
                    const TakeRows& take);
  Status read_rows(TensorReader& in, std::int64_t rows, std::int64_t granule, const TakeRows& take);
  Status wanted() const;
  /// Keeps what was read, and what it became if it is not packed with another tensor. `part`: other
  /// ranks pack other parts of it.
  Status keep(const TensorReader& in, const Packed* packed, bool part);

  const Checkpoint& checkpoint_;
  const Numerics numerics_;
  const ReadGoesOn& goes_on_;
  Buffer& room_;
  HeldTensors tensors_;
  Status status_;
};

}  // namespace troupe
