#pragma once

#include <vector>

#include "tools/troupe/plan/fit.h"

namespace troupe {

/// What would make it fit: changes of one flag each, every one of them tried.
std::vector<Remedy> find_remedies(const FitQuestion& question);

}  // namespace troupe
