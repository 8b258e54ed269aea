#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "runtime/split_mix.h"

/// Every op of the CUDA back-end once, on tensors that lie wherever the caller wants them: what an
/// op computes must not depend on that.
namespace troupe::kernels {

/// Hands out tensors [rows, heads, dim], filled with the same numbers wherever they lie.
class Places {
 public:
  virtual ~Places() = default;
  Tensor tensor(DType dtype, std::int64_t rows, std::int64_t heads, std::int64_t dim);
  /// Blocks of a cache that lie apart as far as the caller wants: pool and ids of its blocks.
  virtual std::int32_t block(std::int32_t i, std::int64_t block_bytes) = 0;
  virtual std::byte* take(std::size_t bytes) = 0;

 protected:
  /// Elements from a row to the next.
  virtual std::int64_t row_stride(std::int64_t dense) = 0;

 private:
  SplitMix random_{11};
};

struct MenuOp {
  std::string name;
  std::function<Tensor(Stream&, Places&)> run;  ///< gives what it has written
};
const std::vector<MenuOp>& op_menu();

/// The numbers of a tensor, row after row.
std::vector<std::byte> gathered(const Tensor& x);

}  // namespace troupe::kernels
