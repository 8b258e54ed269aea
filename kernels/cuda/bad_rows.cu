#include "kernels/bad_rows.h"

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A warp a row. Bytes: 4 a number, once. Operations: a mask, a comparison and an or a number, five
/// shuffles a row. Bound by memory, or by the launch.
struct BadRow {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  Tensor x;
  std::int32_t layer;
  std::int32_t* first;

  DEVICE void operator()(Cta& cta) const {
    const auto* numbers = head_at<const float>(x, cta.block_x());
    std::uint32_t bad = 0;
    for (std::int64_t i = cta.lane(); i < x.dim; i += kThreads)
      bad |= (std::bit_cast<std::uint32_t>(numbers[i]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
#pragma unroll
    for (int apart = kThreads / 2; apart > 0; apart /= 2)
      bad |= cta.shuffle(0xffffffffu, bad, cta.lane() ^ apart);
    if (cta.lane() == 0 && bad != 0 && first[cta.block_x()] == kNeverBad)
      first[cta.block_x()] = layer;
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::bad_rows(Stream& stream, const Tensor& x, std::int32_t layer,
                                 std::int32_t* first) {
  launch(stream, {x.rows}, BadRow{x, layer, first});
}

}  // namespace troupe::kernels
