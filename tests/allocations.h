#pragma once

#include <cstddef>

namespace troupe::testing {

/// How often operator new was called in this process, by any thread. Needs allocations.cpp among
/// the test's sources.
std::size_t allocations();

}  // namespace troupe::testing
