#pragma once

#include "kernels/cpu/products.h"
#include "kernels/linear.h"

/// The parts of `linear` that the gated MLP uses too.
namespace troupe::kernels::cpu {

/// Bytes of one row of activations for a weight; with full precision, of both its parts.
std::int64_t prepared_row_bytes(const ProductKernels& kernels, const WeightLayout& layout);
std::int64_t prepared_low_bytes(const ProductKernels& kernels, const Weight& weight,
                                const WeightLayout& layout);

/// Columns [first, first + count) of a row, float32 or bf16, into a prepared row whose padding is
/// zero.
void put_columns(const ProductKernels& kernels, const WeightLayout& layout, std::int64_t low_bytes,
                 const void* x, bool bf16, std::int64_t first, std::int64_t count, std::byte* row);
/// Zeros behind every slice of a prepared row.
void clear_padding(const ProductKernels& kernels, const WeightLayout& layout,
                   std::int64_t low_bytes, std::byte* row);

/// What the product of `rows` rows with one panel costs a thread, roughly, in ns.
double panel_work_ns(const Stream& stream, const WeightLayout& layout, std::int64_t rows);

/// Room for every thread of a stream.
std::byte* product_room(Stream& stream);

}  // namespace troupe::kernels::cpu
