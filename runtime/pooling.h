#pragma once

#include <cstdint>

namespace troupe {

/// Of which tokens of its prompt a request wants the hidden states: what the last layer gives,
/// behind the final norm.
enum class Pooling : std::uint8_t {
  kNone,
  kLast,  ///< of the last one, which has seen all others
  kAll,
};

}  // namespace troupe
