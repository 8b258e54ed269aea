#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/inner/lanes_math.h"
#include "kernels/cpu/inner/attention_panels.h"
#include "kernels/cpu/inner/attention_products.h"
#include "kernels/cpu/inner/attention.h"

namespace troupe::kernels::cpu {

const AttentionKernel kAttentionAvx2 = {FmaProducts::query_bytes, FmaProducts::prepare,
                                        attention_tile<FmaProducts>, fold_partial};

}  // namespace troupe::kernels::cpu
