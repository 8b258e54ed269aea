// The library's own AMX attention is not linked where this is: tiles are plain C++.
#include "amx_twin.h"

#include "kernels/cpu/amx/attention.cpp"  // NOLINT(bugprone-suspicious-include)
