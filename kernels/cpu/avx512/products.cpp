#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/inner/products_codes_avx512.h"
#include "kernels/cpu/inner/products_multiply.h"

namespace troupe::kernels::cpu {

const ProductKernels& products_avx512() { return kFmaProducts; }

}  // namespace troupe::kernels::cpu
