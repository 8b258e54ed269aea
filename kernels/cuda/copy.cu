#include "kernels/copy.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes: a number is read and written once. No operations but an address's: bound by memory.
template <class T>
struct CopyNumber {
  Tensor x, y;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t head = col / x.dim, i = col % x.dim;
    head_at<T>(y, row, head)[i] = head_at<T>(x, row, head)[i];
  }
};

template <class T>
void copy_numbers(Stream& stream, const Tensor& x, const Tensor& y) {
  each_number(stream, x.rows, x.cols(), CopyNumber<T>{x, y});
}

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::copy(Stream& stream, const Tensor& x, const Tensor& y) {
  assert(x.dtype == y.dtype && x.rows == y.rows && x.heads == y.heads && x.dim == y.dim);
  switch (dtype_size(x.dtype)) {
    case 1:
      return copy_numbers<std::uint8_t>(stream, x, y);
    case 2:
      return copy_numbers<std::uint16_t>(stream, x, y);
    case 4:
      return copy_numbers<std::uint32_t>(stream, x, y);
    default:
      return copy_numbers<std::uint64_t>(stream, x, y);
  }
}

}  // namespace troupe::kernels
