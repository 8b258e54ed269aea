#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe::kernels {

/// A GPU that this process may use.
struct Gpu {
  std::string name;    ///< of the product
  std::string bus_id;  ///< where it is, as "0000:65:00.0"
  std::string architecture;  ///< "sm_90"
  std::uint64_t memory_bytes = 0;
};

/// By their numbers, from 0. kUnavailable: there are none, or this program is built without CUDA,
/// in words that follow a colon.
Result<std::vector<Gpu>> gpus();

}  // namespace troupe::kernels
