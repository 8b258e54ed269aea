#include "runtime/xxh3.h"

#define XXH_STATIC_LINKING_ONLY  // the size of a state
#include <xxh_x86dispatch.h>  // the widest vectors that the processor has

namespace troupe {

struct Xxh3::State {
  XXH3_state_t xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { (void)XXH3_128bits_reset(&state_->xxh); }
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::add(std::span<const std::byte> bytes) {
  (void)XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest Xxh3::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.low64, hash.high64};
}

Digest xxh3_128(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

std::uint64_t xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace troupe
