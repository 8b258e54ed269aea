#include "kernels/copy.h"

#include <cassert>
#include <cstring>

#include "kernels/cpu/ops.h"

namespace troupe::kernels {

void cpu::copy(Stream&, const Tensor& x, const Tensor& y) {
  assert(x.dtype == y.dtype && x.rows == y.rows && x.heads == y.heads && x.dim == y.dim);
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t h = 0; h < x.heads; ++h)
      std::memcpy(static_cast<char*>(y.data) + (r * y.row_stride + h * y.head_stride) * size,
                  static_cast<const char*>(x.data) + (r * x.row_stride + h * x.head_stride) * size,
                  static_cast<std::size_t>(x.dim * size));
}

}  // namespace troupe::kernels
