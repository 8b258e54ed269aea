#include "runtime/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe {

std::uint64_t xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace troupe
