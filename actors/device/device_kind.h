#pragma once

#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "runtime/cpu_family.h"
#include "runtime/numerics.h"

namespace troupe {

/// What computes on devices of that kind; null: a processor's own instructions, or nothing that
/// this program has.
const kernels::Backend* backend_of(std::string_view kind);
/// What such a device computes, if it proves that it does; `family`: of this machine's processors.
std::vector<Numerics> numerics_of(std::string_view kind, CpuFamily family);

}  // namespace troupe
