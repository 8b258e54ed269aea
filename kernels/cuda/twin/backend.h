#pragma once

#include "kernels/backend.h"

namespace troupe::kernels {

/// The CUDA back-end's kernels, run on the host thread by thread (kernels/README.md). The seed of a
/// stream's order is its `order_seed`. Null on processors without AVX2 and FMA.
const Backend* cuda_twin_backend();
/// The same with the plain kernels of products and attention.
const Backend* cuda_plain_twin_backend();

}  // namespace troupe::kernels
