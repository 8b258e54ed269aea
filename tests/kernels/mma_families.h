#pragma once

#include <vector>

#include "families.h"

namespace troupe::kernels {

/// `cuda_mma` with each order in which an mma may add: a twin's, or that of the GPU that is here.
std::vector<Family> all_orders();
/// The same without those that the scalar twin has too.
std::vector<Family> other_orders();
/// Of the same device, without tensor cores.
const Backend* plain_backend();

}  // namespace troupe::kernels
