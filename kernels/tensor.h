#pragma once

#include <cassert>
#include <cstdint>

#include "runtime/buffer.h"
#include "runtime/dtype.h"

namespace troupe::kernels {

/// A view of numbers that someone else owns: [rows, heads, dim], where `dim` is contiguous and the
/// other two strides are free, so that a part of every head (the rotary part of q, say) is a view
/// too. A matrix has one head. Code outside of kernels/ shapes and passes it, and does not look
/// inside.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  MemoryKind memory = MemoryKind::kHost;
  std::int64_t rows = 0, heads = 1, dim = 0;
  std::int64_t row_stride = 0, head_stride = 0;  ///< in elements

  bool empty() const { return rows == 0; }
  std::int64_t cols() const { return heads * dim; }

  /// Rows [first, first + count).
  Tensor part(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows);
    Tensor t = moved(first * row_stride);
    t.rows = count;
    return t;
  }
  /// Elements [first, first + count) of every head.
  Tensor columns(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= dim);
    Tensor t = moved(first);
    t.dim = count;
    return t;
  }
  /// A matrix [rows, heads * d] as [rows, heads, d].
  Tensor split(std::int64_t into_heads) const {
    assert(heads == 1 && dim % into_heads == 0);
    Tensor t = *this;
    t.heads = into_heads;
    t.dim = dim / into_heads;
    t.head_stride = t.dim;
    return t;
  }
  /// Dense heads as a matrix [rows, heads * dim].
  Tensor flat() const {
    assert(heads == 1 || head_stride == dim);
    Tensor t = *this;
    t.heads = 1;
    t.dim = heads * dim;
    t.head_stride = t.dim;
    return t;
  }

 private:
  Tensor moved(std::int64_t elements) const {
    Tensor t = *this;
    t.data = static_cast<char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
    return t;
  }
};

/// Dense [rows, dim] in host memory.
inline Tensor host_tensor(void* data, DType dtype, std::int64_t rows, std::int64_t dim) {
  return {data, dtype, MemoryKind::kHost, rows, 1, dim, dim, dim};
}

}  // namespace troupe::kernels
