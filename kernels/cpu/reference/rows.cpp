#include "kernels/cpu/inner/rows.h"

namespace troupe::kernels {
namespace {

struct PlainSums {
  static float squares(const float* x, std::int64_t n) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    return sum;
  }
};

}  // namespace

namespace cpu {
const RowKernels kRowsReference = row_kernels_with<PlainSums>();
}  // namespace cpu

}  // namespace troupe::kernels
