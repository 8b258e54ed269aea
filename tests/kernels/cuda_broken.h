#pragma once

#include <cstdint>

#include "kernels/chosen_mlp.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/mma_attention.h"
#include "kernels/cuda/product.h"

/// Copies of the back-end's own kernels that break where a test wants it: cuda_broken_copy.cmake
/// says where.
namespace troupe::kernels::cuda_twin {

enum class Fault {
  kNone,
  // FastProduct.
  kProductReadsEarly,  ///< no barrier behind the chunk of x
  kProductSumsEarly,   ///< none before the sums of blocks are added
  kProductStaleTile,   ///< every chunk of x is the first
  kProductWrongLane,   ///< a lane's sums go to its neighbour's outputs
  // MmaProduct.
  kMmaSumsEarly,        ///< no barrier before the sums of stretches are added
  kMmaSumsOverwritten,  ///< none behind that
  kMmaWrongLane,        ///< x of the neighbour's k
  kMmaNotAll,           ///< lanes without a row stay away from an mma
  // MmaPart.
  kPartNoWait,           ///< does not wait for a tile's copies
  kPartTileEarly,        ///< no barrier between a tile's copies and scores
  kPartScoresEarly,      ///< none between scores and weights
  kPartTileOverwritten,  ///< none before the tile's room is copied to
  kPartWrongLane,        ///< a lane names the row of another matrix of keys
  // SortChosen.
  kSortSumsEarly,        ///< no barrier before the sums of warps are added
  kSortSumsOverwritten,  ///< none behind that
  kSortWrongLane,        ///< the first lanes ask for those below the warp
};

/// Of the copies.
extern Fault fault;

/// How often the product's copy has called fma_f32.
extern std::int64_t fma_calls;
inline float counted_fma(float a, float b, float c) {
  ++fma_calls;
  return fma_f32(a, b, c);
}

decltype(fast_products) fast_products_copy;
decltype(mma_products) mma_products_copy;
decltype(mma_attention) mma_attention_copy;
decltype(kernels::chosen_mlp) chosen_mlp_copy, plain_chosen_mlp_copy;

}  // namespace troupe::kernels::cuda_twin
