#pragma once

#include "kernels/cpu/weight_decode.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Whether there is such an item.
DEVICE bool is_listed(const Products& p, std::int64_t item) {
  return p.listed == nullptr || item < *p.listed;
}

DEVICE ProductItem item_of(const Products& p, std::int64_t i) {
  if (p.items != nullptr) return p.items[i];
  const EvenItems& even = p.even;
  const auto at = static_cast<std::int32_t>(i);
  const std::int32_t matrix = at % even.matrices, piece = at / even.matrices;
  const std::int32_t pieces = (even.rows + even.at_once - 1) / even.at_once;
  const std::int32_t group = piece / pieces, row = piece % pieces * even.at_once;
  ProductItem item;
  item.panels = even.panels[matrix] + group * p.layout.panels * p.layout.panel_bytes;
  item.bias = even.bias[matrix];
  item.x = even.x + group * even.x_group_bytes + row * p.x_bytes;
  item.y = even.y + group * even.y_group_bytes + matrix * even.y_matrix_bytes + row * p.y_bytes;
  item.rows = even.rows - row < even.at_once ? even.rows - row : even.at_once;
  return item;
}

/// With the bias, rounded if the target is.
DEVICE void put_output(const Products& p, const ProductItem& item, int row, std::int64_t output,
                       float value) {
  if (item.bias != nullptr) value = value + item.bias[output];
  std::byte* to = item.y_rows != nullptr ? item.y_rows[row] : item.y + row * p.y_bytes;
  if (p.y_bf16)
    reinterpret_cast<std::uint16_t*>(to)[output] = to_bf16(value).bits;
  else
    reinterpret_cast<float*>(to)[output] = value;
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
