#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight.h"

namespace troupe::kernels {

/// How a packed matrix lies in memory. Included by files with wide instructions: plain data, and
/// nothing inline that is not always so.
///
/// Outputs are cut into panels of 32, k into slices, and a slice (padded by zeros) into blocks of
/// 32. A block is two tiles of 16 outputs; a tile is rows of 16 dwords, one for each output: two
/// consecutive k of bf16, one of float32, four of FP8. A row of FP8 (64 bytes) holds, for each four
/// outputs, their first two k and then their last two. Of kInt4, a row is 16 times eight bytes: of
/// an output's 16 consecutive k the even ones, then the odd ones. Of kFp4, a dword is eight k.
///
///     group | panel | part | slice | block | tile | row | output          (codes)
///           | panel | column of scales | 32 outputs, or one for all       (scales; a column may be
///                                                                          a single k)
///           | panel | column of scales | 32 outputs, four bits each       (zeros)
///
/// Nodes compare digests of it: a change of it is a new kProtocol that goes with no older one
/// (transport/protocol.h), and a new kFormat of what the cluster knows
/// (tools/troupe/known_file.cpp).
///
/// A panel's codes, scales and zeros lie together. A float32 weight of the numerics `bf16` with
/// full precision has two parts, both bf16: w rounded, and what is left of it, rounded.
struct WeightLayout {
  static constexpr std::int64_t kOutputs = 32, kBlock = 32;
  static constexpr std::int64_t kTileOutputs = 16;

  Codes codes = Codes::kBf16;  ///< of the tiles
  DType scale_dtype = DType::kF32;
  bool scaled = false, zeros = false;
  int parts = 1, slices = 1;
  std::int64_t groups = 1, n = 0, k = 0;
  std::int64_t slice_k = 0, blocks = 0;  ///< of a slice
  std::int64_t panels = 0;               ///< of a group
  std::int64_t scale_n = 0, scale_k = 0;
  std::int64_t scale_columns = 0;  ///< along k
  std::int64_t block_bytes = 0, part_bytes = 0;
  std::int64_t scale_bytes = 0;  ///< of one column of a panel
  std::int64_t scales_at = 0, zeros_at = 0, panel_bytes = 0;

  /// A scale for each k.
  bool turned() const { return scaled && scale_k == 1; }
  std::size_t bytes() const { return static_cast<std::size_t>(groups * panels * panel_bytes); }

  static WeightLayout of(const Weight& weight);
  static const std::byte* panel(const Weight& w, const WeightLayout& layout, std::int64_t group,
                                std::int64_t panel) {
    return w.at() + (group * layout.panels + panel) * layout.panel_bytes;
  }
  static Numerics numerics(const Weight& w) { return w.numerics_; }
  static const PackOptions& options(const Weight& w) { return w.options_; }

  /// What was packed with `rows`: [groups * n, k] of kF32 or kBf16, dense.
  static DType row_dtype(const Weight& w) {
    return w.codes_ == Codes::kF32 ? DType::kF32 : DType::kBf16;
  }
  static const std::byte* row_data(const Weight& w) { return w.at(); }

  /// What is held of a matrix: all of a Weight but its memory.
  static Weight plan(Numerics numerics, const StoredMatrix& stored, const PackOptions& options,
                     std::int64_t groups);
  static std::size_t bytes_of(const Weight& planned);
};

}  // namespace troupe::kernels
