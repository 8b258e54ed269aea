// What is built where there is no nvcc.
#include "kernels/backend.h"

namespace troupe::kernels {

const Backend* cuda_backend() { return nullptr; }

}  // namespace troupe::kernels
