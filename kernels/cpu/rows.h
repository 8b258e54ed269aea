#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/silu_mul.h"
#include "runtime/dtype.h"

/// The loops over a row that are worth a family's instructions. Plain data only: files with wide
/// instructions include this.
namespace troupe::kernels::cpu {

struct RowKernels {
  /// y = x (1 / sqrt(mean(x^2) + epsilon)) weight
  void (*norm)(const float* x, const float* weight, std::int64_t n, float epsilon, float* y);
  /// y = act(gate, up); y may be gate or up.
  void (*gated_act)(GatedAct act, const float* gate, const float* up, std::int64_t n, float* y);
  /// y += x
  void (*add)(const float* x, std::int64_t n, float* y);
  /// y += weight x; x of float32 or bf16
  void (*add_weighted)(const void* x, DType dtype, float weight, std::int64_t n, float* y);
  /// (a, b) -> (a cos - b sin, b cos + a sin): pairs (2i, 2i + 1), or (i, i + half)
  void (*turn)(const float* cos, const float* sin, std::int64_t half, bool interleaved, float* x);
  /// To float32, bf16 or e4m3, nearest even.
  void (*narrow)(const float* x, std::int64_t n, DType dtype, void* y);
  /// From float32 or bf16.
  void (*widen)(const void* x, DType dtype, std::int64_t n, float* y);
};

/// `reference` (the baseline), the others for `bf16`.
extern const RowKernels kRowsReference, kRowsAvx2, kRowsAvx512;

}  // namespace troupe::kernels::cpu
