#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/inner/products_codes_avx2.h"
#include "kernels/cpu/inner/products_multiply.h"

namespace troupe::kernels::cpu {

const ProductKernels& products_avx2() { return kFmaProducts; }

}  // namespace troupe::kernels::cpu
