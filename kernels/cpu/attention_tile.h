#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/dtype.h"

/// What a family does for attention, one tile of the context at a time. Plain data only: files with
/// wide instructions include this.
namespace troupe::kernels::cpu {

inline constexpr std::int32_t kTile = 256;    ///< positions whose maximum is taken together
inline constexpr std::int32_t kPart = 1024;   ///< tiles fold from the left, afresh every so many
inline constexpr std::int32_t kBlock = 32;    ///< terms of a product's chains

/// Queries that share their keys: they are read once for all of them.
inline constexpr std::int64_t kUnitQueries = 128;
/// Results of parts of the context that wait for being joined, a unit's at least.
inline constexpr std::size_t kWaitingBytes = 64u << 20;

/// Softmax-weighted sums that are not divided yet: of no position at all where sum is 0.
struct PartialSoftmax {
  float* out = nullptr;  ///< [queries, v_dim]; null in what is folded: zeros
  float* max = nullptr;  ///< [queries]
  float* sum = nullptr;  ///< [queries]
};

/// Queries that share their keys and values, over positions [first, first + kTile).
struct TileWork {
  std::int64_t queries = 0, k_dim = 0, v_dim = 0;
  const std::byte* q = nullptr;        ///< as `prepare` has left them
  const std::int32_t* from = nullptr;  ///< [queries] query i sees positions [from[i], to[i])
  const std::int32_t* to = nullptr;
  float scale = 1;
  std::int32_t first = 0;
  /// [kTile] rows of the cache; one of zeros where no query sees. The keys of the next tile follow.
  const std::byte* const* keys = nullptr;
  const std::byte* const* values = nullptr;
  bool shared = false;       ///< a value is a part of its key
  const std::byte* zeros = nullptr;  ///< a row of them
  DType dtype = DType::kBf16;
  float* scores = nullptr;     ///< room: [queries, kTile]
  std::byte* room = nullptr;   ///< kTileRoom
  PartialSoftmax to_write;
};

inline constexpr std::size_t kTileRoom = 96u << 10;

struct AttentionKernel {
  /// Bytes of a prepared query.
  std::int64_t (*query_bytes)(std::int64_t k_dim);
  void (*prepare)(const float* q, std::int64_t k_dim, std::byte* prepared);
  void (*tile)(const TileWork& work);
  /// `into` becomes `into` followed by `next`.
  void (*fold)(const PartialSoftmax& into, const PartialSoftmax& next, std::int64_t queries,
               std::int64_t v_dim);
};

extern const AttentionKernel kAttentionReference, kAttentionAvx2, kAttentionAvx512, kAttentionAmx;
extern const AttentionKernel kAttentionDot;  ///< of `avx512_bf16`

}  // namespace troupe::kernels::cpu
