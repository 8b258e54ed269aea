#include "kernels/rms_norm.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A CTA for each head of each row, a thread for each of the definition's 128 lanes. Bytes: 8 d,
/// and from a cache 4 d of the row again and 4 d of the weight. Operations, a number: an fma and
/// two multiplications, and the row's seven additions between barriers. Bound by memory, or by the
/// launch.
struct Norm {
  static constexpr int kThreads = 128;
  static constexpr std::size_t kSharedBytes = kThreads * sizeof(float);
  static constexpr bool kMeets = true;

  Tensor x, y;
  const float* weight;
  float epsilon;

  DEVICE void operator()(Cta& cta) const {
    const int lane = cta.thread();
    const Shared<float> lanes = cta.shared<float>(0, kThreads);
    const float* from = head_at<const float>(x, cta.block_x(), cta.block_y());
    float* to = head_at<float>(y, cta.block_x(), cta.block_y());
    float squares = 0;
    for (std::int64_t i = lane; i < x.dim; i += kThreads)
      squares = fma_f32(from[i], from[i], squares);
    lanes[lane] = squares;
    cta.sync();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (lane < half) lanes[lane] = lanes[lane] + lanes[lane + half];
      cta.sync();
    }
    const float mean = lanes[0] / static_cast<float>(x.dim);
    const float scale = 1.0f / root(mean + epsilon);
    for (std::int64_t i = lane; i < x.dim; i += kThreads) to[i] = from[i] * scale * weight[i];
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::rms_norm(Stream& stream, const Tensor& x, const Weight& weight,
                                 float epsilon, const Tensor& y) {
  assert(x.rows == y.rows && x.heads == y.heads && x.dim == y.dim);
  assert(weight.n() * weight.k() == x.dim);
  launch(stream, {x.rows, x.heads}, Norm{x, y, vector_of(weight), epsilon});
}

}  // namespace troupe::kernels
