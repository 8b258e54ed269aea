#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// float32 rows that someone else owns; `stride` is the distance between rows in elements.
struct ConstRows {
  const float* data = nullptr;
  std::size_t rows = 0, cols = 0, stride = 0;

  const float* row(std::size_t r) const { return data + r * stride; }
};

struct Rows {
  float* data = nullptr;
  std::size_t rows = 0, cols = 0, stride = 0;

  float* row(std::size_t r) const { return data + r * stride; }
  operator ConstRows() const { return {data, rows, cols, stride}; }
};

/// Dense views: rows follow each other without a gap.
inline ConstRows const_rows(const float* data, std::size_t rows, std::size_t cols) {
  return {data, rows, cols, cols};
}
inline Rows make_rows(float* data, std::size_t rows, std::size_t cols) {
  return {data, rows, cols, cols};
}

/// [rows, heads, dim], where `dim` is contiguous and the other two strides are free, so that a part
/// of every head (the rotary part of q, say) is a view too.
struct ConstHeads {
  const float* data = nullptr;
  std::size_t rows = 0, heads = 0, dim = 0;
  std::size_t row_stride = 0, head_stride = 0;

  const float* at(std::size_t row, std::size_t head) const {
    return data + row * row_stride + head * head_stride;
  }
  ConstRows head(std::size_t h) const { return {data + h * head_stride, rows, dim, row_stride}; }
};

struct Heads {
  float* data = nullptr;
  std::size_t rows = 0, heads = 0, dim = 0;
  std::size_t row_stride = 0, head_stride = 0;

  float* at(std::size_t row, std::size_t head) const {
    return data + row * row_stride + head * head_stride;
  }
  Rows head(std::size_t h) const { return {data + h * head_stride, rows, dim, row_stride}; }
  operator ConstHeads() const { return {data, rows, heads, dim, row_stride, head_stride}; }
};

/// Dense [rows, heads, dim].
inline ConstHeads const_heads(const float* data, std::size_t rows, std::size_t heads,
                              std::size_t dim) {
  return {data, rows, heads, dim, heads * dim, dim};
}
inline Heads make_heads(float* data, std::size_t rows, std::size_t heads, std::size_t dim) {
  return {data, rows, heads, dim, heads * dim, dim};
}

}  // namespace troupe::kernels
