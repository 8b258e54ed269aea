#include "device_under_test.h"
#include "kernels/cuda/twin/backend.h"

namespace troupe::kernels {

const Backend* device_under_test() { return cuda_twin_backend(); }

}  // namespace troupe::kernels
