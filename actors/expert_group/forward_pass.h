#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/expert_group/expert_pass.h"
#include "model/expert_forward.h"

namespace troupe {

/// The model's ExpertPass: the experts that the device hosts, whichever replicas' rows they are
/// for. Every weight is read once a pass; no row's result depends on what it was grouped with.
class ForwardPass final : public ExpertPass {
 public:
  ForwardPass(const ModelConfig& model, Numerics numerics, CpuDevice& device);

  /// Of one row of a question, and of one of its answer.
  static std::size_t row_bytes(const ModelConfig& model, Numerics numerics) {
    return static_cast<std::size_t>(model.hidden_size) * wire_size(wire_type(numerics));
  }

  std::vector<PassAnswer> run(std::vector<Envelope> questions) override;

 private:
  std::vector<PassAnswer> run_layer(std::int32_t layer, const std::vector<Envelope>& questions);

  const std::size_t row_bytes_;
  CpuDevice& device_;
  ExpertForward forward_;
};

}  // namespace troupe
