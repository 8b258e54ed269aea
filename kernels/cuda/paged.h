#pragma once

#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/device.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// The slot of a position in its pool.
DEVICE std::int64_t slot_of(const KvPool& pool, const std::int32_t* table, std::int32_t position) {
  return table[position / pool.block_size] * pool.block_size + position % pool.block_size;
}

/// A launch's copy of where rows lie: of each sequence's table as far as its rows reach.
inline PagedRows staged_rows(Stream& stream, const KvPool& pool, const PagedRows& where,
                             std::int64_t rows) {
  std::vector<const std::int32_t*> tables(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0, end = 0; row < rows; row = end) {
    std::int32_t last = where.positions[row];
    for (end = row + 1; end < rows && where.tables[end] == where.tables[row]; ++end)
      last = std::max(last, where.positions[end]);
    const std::int32_t* table = staged(stream, where.tables[row], last / pool.block_size + 1);
    std::fill(tables.begin() + row, tables.begin() + end, table);
  }
  return {staged(stream, tables.data(), rows), staged(stream, where.positions, rows)};
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
