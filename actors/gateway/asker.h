#pragma once

#include <cstdint>
#include <string>

#include "runtime/tensor_proof.h"

namespace troupe {

/// Who sent a request that generates, and by what it is known again.
struct Asker {
  std::uint64_t owner = 0;  ///< ApiKeys::owner()
  std::string key;          ///< the value of Idempotency-Key; empty: it has none
  Digest body;              ///< of the body, and of what it was sent to
};

}  // namespace troupe
