#pragma once

#include "kernels/cpu/linear_slice.h"
#include "kernels/matrix.h"
#include "kernels/packed_matrix.h"

/// The parts of `linear` that the grouped expert pass uses too.
namespace troupe::kernels::cpu {

/// How a packed matrix wants its activations, and who multiplies them.
struct LinearPlan {
  void (*slice)(const LinearSlice&) = nullptr;
  bool round_x = false;  ///< rows are rounded to bf16 and padded first
};

LinearPlan linear_plan(const PackedMatrix& weight);

/// Activations as the plan wants them; for `round_x`, dense rows of prepared_stride bytes.
struct PreparedRows {
  const void* data = nullptr;
  std::size_t rows = 0, stride = 0;  ///< stride in bytes
};

std::size_t prepared_stride(const PackedMatrix& weight);

/// Rounds one row of x [k] for a `round_x` plan.
void round_row(const PackedMatrix& weight, const float* x, void* out);

/// y[:, columns of panels first..last) for all rows, on the calling thread.
void run_panels(const PackedMatrix& weight, const PreparedRows& x, std::int64_t first,
                std::int64_t last, Rows y);

/// What the product of `rows` rows costs one thread, roughly, in ns: memory or arithmetic.
double linear_work_ns(const PackedMatrix& weight, std::size_t rows);

}  // namespace troupe::kernels::cpu
