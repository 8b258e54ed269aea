#include "kernels/cpu/inner/rows.h"

#include "kernels/cpu/inner/fma_sums.h"

namespace troupe::kernels::cpu {

const RowKernels kRowsAvx2 = row_kernels_with<FmaSums>();

}  // namespace troupe::kernels::cpu
