#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe {

/// XXH3-64 of some bytes: the same everywhere, for noticing what changed by accident.
std::uint64_t xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace troupe
