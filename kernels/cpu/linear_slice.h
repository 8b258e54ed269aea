#pragma once

#include <cstddef>
#include <cstdint>

/// The contract between the generic part of `linear` and the families' inner kernels. Included by
/// translation units with wide instructions: plain data only, nothing inline.
namespace troupe::kernels::cpu {

/// Some pieces, each a slice of a panel: y[r][0..31] = sum over k of x[r][k] * w[k][0..31].
/// They are the slices of one panel or panels of one slice each; a step leads to the next piece.
struct LinearSlice {
  std::int64_t pieces = 1;
  std::size_t weights_step = 0, x_step = 0;  ///< bytes
  std::size_t y_step = 0;                    ///< floats

  const void* weights = nullptr;  ///< the first piece's first element, 64-byte aligned
  bool bf16_pairs = false;        ///< [k/2][32][2] bf16, else [k][32] float32
  std::int64_t k = 0;             ///< terms of the sum
  std::int64_t k_padded = 0;      ///< the same with padding, for kernels that take rounded rows
  const void* x = nullptr;        ///< float32 [rows][k], or bf16 [rows][k_padded] zero padded
  std::size_t x_stride = 0;       ///< bytes between rows of x
  std::size_t rows = 0;
  float* y = nullptr;        ///< always 32 columns
  std::size_t y_stride = 0;  ///< floats between rows of y
};

/// Adds k in ascending order with a multiplication and an addition each.
void linear_slice_reference(const LinearSlice& slice);

/// Adds k in ascending order with a fused multiplication each.
void linear_slice_avx2(const LinearSlice& slice);

/// Rounded rows; adds pairs of k in ascending order with one vdpbf16ps each.
void linear_slice_avx512_bf16(const LinearSlice& slice);

/// Rounded rows; adds 32 k in ascending order with one tdpbf16ps each.
void linear_slice_amx_bf16(const LinearSlice& slice);

/// Rounds x [k] to bf16 and pads with zeros to k_padded. Numbers below the normal range become
/// zero, as the bf16 products would treat them anyway.
void round_slice_avx512_bf16(const float* x, std::int64_t k, std::int64_t k_padded,
                             std::uint16_t* out);

}  // namespace troupe::kernels::cpu
