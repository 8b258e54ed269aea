// Sizes of the paged cache, and the pool that holds the tokens.

#include "model/kv_cache.h"

#include "tests/model/local_model.h"

namespace troupe {
namespace {

TEST_CASE("blocks and bytes agree") {
  const auto config = testing::must(load_model_config(testing::source_path("tests/golden/v3")));
  for (const auto numerics : {Numerics::kReference, Numerics::kAvx512Bf16}) {
    KvCacheSpec spec{1, 3, 10, 16};
    const std::uint64_t row = 48 * wire_size(wire_type(numerics));
    CHECK(kv_cache_bytes(config, numerics, spec) == 10 * 16 * (2 * row + 4));
    const auto bytes = kv_cache_bytes(config, numerics, spec);
    CHECK(blocks_for_bytes(config, numerics, spec, bytes) == 10);
    CHECK(blocks_for_bytes(config, numerics, spec, bytes - 1) == 9);
    CHECK(blocks_for_bytes(config, numerics, spec, 0) == 0);
    CHECK(blocks_for_bytes(config, numerics, spec, ~std::uint64_t{0}) == 2147483647);
  }
}

TEST_CASE("what cannot be is refused") {
  const auto config = testing::must(load_model_config(testing::source_path("tests/golden/v3")));
  auto refused = [&](KvCacheSpec spec) {
    return !KvCache::create(config, Numerics::kReference, spec).ok();
  };
  CHECK_FALSE(refused({0, 4, 1, 1}));
  CHECK(refused({0, 5, 1, 1}));
  CHECK(refused({-1, 4, 1, 1}));
  CHECK(refused({2, 2, 1, 1}));
  CHECK(refused({0, 4, 0, 1}));
  CHECK(refused({0, 4, 1, 0}));
}

}  // namespace
}  // namespace troupe
