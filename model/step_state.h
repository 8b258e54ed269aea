#pragma once

#include <cstdint>
#include <vector>

#include "kernels/combine.h"
#include "kernels/mla_attention.h"
#include "model/row_trouble.h"
#include "model/shard_forward.h"
#include "runtime/buffer.h"

namespace troupe {

/// Memory that grows to its largest use and keeps it.
template <class T>
class Grown {
 public:
  T* at_least(std::size_t count) {
    if (buffer_.size() < count * sizeof(T)) buffer_ = Buffer(count * sizeof(T));
    return data();
  }
  T* data() { return buffer_.template as<T>(); }
  const T* data() const { return buffer_.template as<T>(); }

 private:
  Buffer buffer_;
};

/// What a step keeps between the cuts of the forward pass. `rows` are all tokens of all sequences,
/// in the plan's order; `hidden` is the model's width.
struct StepRun::State {
  enum class At : std::uint8_t { kIdle, kAttention, kExperts, kDone };

  StepPlanBody plan;
  At at = At::kIdle;
  std::int32_t layer = 0;       // absolute
  std::size_t rows = 0;
  std::size_t hidden_size = 0;
  std::size_t top_k = 0;
  std::size_t wire_row_bytes = 0;
  bool shared_done = false;

  std::vector<TokenId> tokens;                  // [rows]
  std::vector<std::int32_t> positions;          // [rows]
  std::vector<const std::int32_t*> tables;      // [rows] into plan

  Grown<float> hidden;                          // [rows, hidden]
  Grown<float> normed;                          // [rows, hidden], what the feed-forward part reads
  Grown<std::byte> normed_wire;                 // [rows, hidden] wire type
  Grown<float> shared;                          // [rows, hidden], the shared expert's output
  std::vector<std::int32_t> expert_ids;         // [rows, top_k], rising within a row
  std::vector<float> expert_weights;            // [rows, top_k]
  Grown<std::byte> expert_outputs;              // [rows, top_k, hidden] wire type
  std::vector<kernels::ExpertOutput> combined;  // [rows, top_k]

  // The arguments of a local pass.
  std::vector<const std::byte*> pair_rows;      // [rows * top_k]
  std::vector<std::byte*> pair_outputs;         // [rows * top_k]
  std::vector<std::int32_t> missing;

  RowTrouble trouble;
  std::vector<SequenceResult> results;
  bool canary = false;                          // a sequence of the plan is one
  std::vector<std::uint64_t> digests;           // [2 a finished layer]

  kernels::PagedRows where() const { return {tables.data(), positions.data()}; }
};

/// What a plan is checked against.
struct StepBounds {
  std::int32_t vocab_size = 0;
  std::int32_t positions = 0;  ///< a sequence may have
  std::int32_t num_blocks = 0;
  std::int32_t block_size = 1;
};

Status check_plan(const StepPlanBody& plan, const StepBounds& bounds);

}  // namespace troupe
