#include <cassert>

#include "model/step_state.h"

namespace troupe {

StepRun::StepRun() : state_(std::make_unique<State>()) {}
StepRun::~StepRun() = default;
StepRun::StepRun(StepRun&&) noexcept = default;
StepRun& StepRun::operator=(StepRun&&) noexcept = default;

std::int32_t StepRun::rows() const { return static_cast<std::int32_t>(state_->rows); }
std::int32_t StepRun::top_k() const { return static_cast<std::int32_t>(state_->top_k); }
std::int32_t StepRun::layer() const { return state_->layer; }
std::size_t StepRun::wire_row_bytes() const { return state_->wire_row_bytes; }
std::span<const std::int32_t> StepRun::expert_ids() const { return state_->expert_ids; }
std::span<const float> StepRun::expert_weights() const { return state_->expert_weights; }

const std::byte* StepRun::normed(std::int32_t row) const {
  assert(row >= 0 && row < rows());
  return state_->normed_wire.data() + static_cast<std::size_t>(row) * state_->wire_row_bytes;
}

std::byte* StepRun::expert_output(std::int32_t row, std::int32_t slot) {
  assert(row >= 0 && row < rows() && slot >= 0 && slot < top_k());
  return state_->pair_outputs[static_cast<std::size_t>(row) * state_->top_k +
                              static_cast<std::size_t>(slot)];
}

const float* StepRun::hidden() const { return state_->hidden.data(); }
const std::vector<SequenceResult>& StepRun::results() const { return state_->results; }
std::vector<SequenceResult>& StepRun::results() { return state_->results; }
const std::vector<std::uint64_t>& StepRun::digests() const { return state_->digests; }

}  // namespace troupe
