#pragma once

#include "model/spec/model_spec.h"
#include "runtime/numerics.h"
#include "tools/troupe/plan/measured.h"

namespace troupe {

/// How fast this machine's processors do what the model asks for, in some seconds: reading memory,
/// products of each kind that it has with several numbers of rows, attention at its widths, and a
/// piece of work that is next to nothing. The matrices are not the model's: they are alike for
/// every model, large, and more than caches hold. Errors: what its numerics or memory lack.
Result<MeasuredDevice> measure_machine(const ModelSpec& spec, Numerics numerics, int threads);

}  // namespace troupe
