#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"

namespace troupe::kernels {

inline const cpu::RowKernels& row_kernels(const Stream& stream) {
  if (stream.numerics() == Numerics::kReference) return cpu::kRowsReference;
  return stream.family() == CpuFamily::kAvx2 ? cpu::kRowsAvx2 : cpu::kRowsAvx512;
}

/// A head of a row.
template <class T>
T* head_of(const Tensor& x, std::int64_t row, std::int64_t head = 0) {
  return static_cast<T*>(x.data) + row * x.row_stride + head * x.head_stride;
}

/// Where a row of a matrix begins.
inline std::byte* row_of(const Tensor& x, std::int64_t row) {
  return static_cast<std::byte*>(x.data) +
         row * x.row_stride * static_cast<std::int64_t>(dtype_size(x.dtype));
}

/// Calls body(row) for every row, about `ns` of work a number.
template <class Body>
void each_row(const Stream& stream, const Tensor& x, double ns, const Body& body) {
  parallel_ranges(stream, static_cast<std::size_t>(x.rows),
                  static_cast<double>(x.rows * x.cols()) * ns,
                  [&](int, std::size_t first, std::size_t last) {
                    for (std::size_t r = first; r < last; ++r) body(static_cast<std::int64_t>(r));
                  });
}

}  // namespace troupe::kernels
