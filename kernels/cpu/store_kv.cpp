#include <cassert>

#include "kernels/attention.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"

namespace troupe::kernels {

void cpu::store_kv(Stream& stream, const KvPool& pool, const PagedRows& where, const Tensor& x,
                   std::int64_t first) {
  assert(x.heads == 1 || x.head_stride == x.dim);
  assert(first >= 0 && first + x.cols() <= pool.row);
  const auto& kernels = row_kernels(stream);
  const auto size = static_cast<std::int64_t>(dtype_size(pool.dtype));
  each_row(stream, x, 0.3, [&](std::int64_t r) {
    const std::int64_t p = where.positions[r];
    const std::int64_t slot =
        where.tables[r][p / pool.block_size] * pool.block_size + p % pool.block_size;
    kernels.narrow(head_of<const float>(x, r), x.cols(), pool.dtype,
                   static_cast<std::byte*>(pool.base) + (slot * pool.row + first) * size);
  });
}

}  // namespace troupe::kernels
