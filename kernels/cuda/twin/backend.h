#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/twin/injected_failure.h"

namespace troupe::kernels {

/// The CUDA back-end's kernels, run on the host thread by thread (kernels/README.md). The seed of a
/// stream's order is its `order_seed`. Null on processors without AVX2 and FMA.
const Backend* cuda_twin_backend();
/// The same with the plain kernels of products and attention.
const Backend* cuda_plain_twin_backend();
/// The first, whose devices fail like that. On a processor that has it.
Backend failing_twin_backend(InjectedFailure injected);

}  // namespace troupe::kernels
