#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/device.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

/// attention() of `cuda_mma`. False, and nothing is done, for a model whose keys and values are
/// wider than MLA's: those have no kernel for tensor cores.
bool mma_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                   const Tensor& q, const Tensor& out);

/// The same with the instructions of sm_90a, to the same bits. False, and nothing is done, where
/// the GPU or the program has none, and for what is not MLA's attention at V3's widths on a bf16
/// cache.
bool wgmma_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                     const Tensor& q, const Tensor& out);

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
