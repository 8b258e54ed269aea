#pragma once

#include <string_view>

#include "kernels/backend.h"

namespace troupe {

/// What computes on devices of that kind; null: a processor's own instructions, or nothing that
/// this program has (is_device_kind).
const kernels::Backend* backend_of(std::string_view kind);
/// Whether this program has such devices, here: "cpu", "cuda-twin".
bool is_device_kind(std::string_view kind);

}  // namespace troupe
