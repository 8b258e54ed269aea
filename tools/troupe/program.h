#pragma once

#include "tools/troupe/doubles.h"

namespace troupe::cli {

/// The whole program: what its main() does. The exit code comes back.
int run_program(int argc, char** argv, const Doubles& doubles = {});

}  // namespace troupe::cli
