#pragma once

#include "kernels/cpu/weight_decode.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/product.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// Whether there is such an item.
DEVICE bool is_listed(const Products& p, std::int64_t item) {
  return p.listed == nullptr || item < *p.listed;
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
