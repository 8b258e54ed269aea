#pragma once

#include <cstdint>
#include <vector>

#include "kernels/moe_gate.h"
#include "kernels/rope.h"
#include "runtime/numerics.h"

/// The ops on single rows in plain scalar C++, as kernels/README.md has them.
namespace troupe::kernels::twin {

std::vector<float> norm(Numerics numerics, const std::vector<float>& x,
                        const std::vector<float>& weight, float epsilon);

/// One head, by the angles of its position.
std::vector<float> rope(const std::vector<float>& x, const std::vector<float>& cos,
                        const std::vector<float>& sin, RopePairs pairs);

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
/// Experts of one row; `bias` may be empty.
Choice gate(const GateConfig& config, const std::vector<float>& logits,
            const std::vector<float>& bias);

/// max, sum and log of the sum.
std::vector<double> log_softmax(const std::vector<float>& logits);

}  // namespace troupe::kernels::twin
