// The library's own AMX products are not linked where this is: tiles are plain C++.
#include "amx_twin.h"

#include "kernels/cpu/amx/products.cpp"  // NOLINT(bugprone-suspicious-include)
