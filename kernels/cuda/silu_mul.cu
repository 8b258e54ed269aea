#include "kernels/silu_mul.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/gated_act.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes: 12 a number. Operations: an exp, a division and a few multiplications, some thirty in
/// all, where an H100 could do a hundred in the time of the bytes: bound by memory.
struct ActNumber {
  GatedAct act;
  Tensor gate, up, y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    head_at<float>(y, row)[col] =
        gated_act(act, head_at<const float>(gate, row)[col], head_at<const float>(up, row)[col]);
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::silu_mul(Stream& stream, GatedAct act, const Tensor& gate, const Tensor& up,
                                 const Tensor& y) {
  assert(gate.rows == up.rows && up.rows == y.rows);
  assert(gate.cols() == up.cols() && up.cols() == y.cols());
  each_number(stream, y.rows, y.cols(), ActNumber{act, gate, up, y});
}

}  // namespace troupe::kernels
