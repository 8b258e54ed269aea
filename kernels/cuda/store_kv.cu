#include "kernels/attention.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/paged.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// Bytes, a number: 4 are read, 2 written (bf16) or 1 (e4m3); the table comes from a cache.
/// Operations: the rounding, and an address's two divisions. Bound by memory, or by the launch.
struct StoreNumber {
  KvPool pool;
  PagedRows where;
  Tensor x;
  std::int64_t first;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t slot = slot_of(pool, where.tables[row], where.positions[row]);
    store_number(head_at<const float>(x, row)[col], pool.dtype, pool.base,
                 slot * pool.row + first + col);
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::store_kv(Stream& stream, const KvPool& pool, const PagedRows& where,
                                 const Tensor& x, std::int64_t first) {
  assert(x.heads == 1 || x.head_stride == x.dim);
  assert(first >= 0 && first + x.cols() <= pool.row);
  Stream::Scope scope(stream);
  const PagedRows there = staged_rows(stream, pool, where, x.rows);
  each_number(stream, x.rows, x.cols(), StoreNumber{pool, there, x, first});
}

}  // namespace troupe::kernels
