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
  kProductNoWait,      ///< does not wait for its codes
  kProductMetEarly,    ///< no barrier before what CTAs have brought is added
  kProductNotAwaited,  ///< the first of the CTAs that share a panel does not await the others
  // MmaProduct.
  kMmaNoWait,      ///< does not wait for the copies of x
  kMmaTileEarly,   ///< no barrier between the copies of x and products
  kMmaSumsEarly,   ///< none before the sums of stretches are added
  kMmaWrongLane,   ///< x of the neighbour's k
  kMmaNotAll,      ///< lanes without a row stay away from an mma
  kMmaStaleSums,   ///< the sums of a slice do not begin again
  kMmaNotAwaited,  ///< the first of the CTAs that share outputs does not await the others
  // MmaPart.
  kPartNoWait,           ///< does not wait for a tile's copies
  kPartTileEarly,        ///< no barrier between a tile's copies and scores
  kPartScoresEarly,      ///< none between scores and weights
  kPartTileOverwritten,  ///< none before the tile's room is copied to
  kPartEndsEarly,        ///< none between what a part is folded with and its folding
  kPartWrongLane,        ///< a lane names the row of another matrix of keys
  // WgmmaPart.
  kGroupNoWait,        ///< does not wait for a tile's copies
  kGroupNotFenced,     ///< tensor cores are not told of them
  kGroupSumsEarly,     ///< O is touched while tensor cores add to it
  kGroupWeightsEarly,  ///< no barrier between weights and what multiplies them
  kGroupOverwritten,   ///< copies go to the tile that is read
  kGroupWrongLane,     ///< a row's sixteen bytes lie as its neighbour's do
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
decltype(wgmma_attention) wgmma_attention_copy;
decltype(kernels::chosen_mlp) chosen_mlp_copy, plain_chosen_mlp_copy;

}  // namespace troupe::kernels::cuda_twin
