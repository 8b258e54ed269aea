#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/expert_group/expert_pass.h"
#include "model/forward/experts.h"

namespace troupe {

/// The model's ExpertPass: the experts that the device hosts, whichever replicas' rows they are
/// for. What is asked of one layer waits together.
class ForwardPass final : public ExpertPass {
 public:
  /// `experts` is shared by all on this device.
  ForwardPass(std::shared_ptr<const ModelSpec> model, Numerics numerics, CpuDevice& device,
              std::shared_ptr<ExpertForward> experts);

  /// Of one row of a question, and of one of its answer.
  static std::size_t row_bytes(const ModelSpec& model, Numerics numerics) {
    return static_cast<std::size_t>(model.hidden) * dtype_size(wire_type(numerics));
  }

  void run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) override;

 private:
  struct Asked;
  void ask(std::span<const Envelope> questions, const std::shared_ptr<PassNews>& news);
  std::shared_ptr<Asked> take_spare(bool express);
  std::vector<std::shared_ptr<Asked>>& spare_for(bool express) {
    return express ? spare_express_ : spare_;
  }

  const std::shared_ptr<const ModelSpec> model_;
  const std::size_t row_bytes_;
  CpuDevice& device_;
  const std::shared_ptr<ExpertForward> experts_;
  /// Those of express steps, which are small, stay so.
  std::vector<std::shared_ptr<Asked>> spare_, spare_express_;
};

}  // namespace troupe
