// Sizes of the paged cache, and the pool that holds the tokens.

#include "model/kv_cache.h"

#include "model/spec/read_spec.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

TEST_CASE("a cache takes its rows and the tokens") {
  const auto model = testing::must(load_model_spec(testing::source_path("tests/golden/v3")));
  for (const auto numerics : {Numerics::kReference, Numerics::kBf16, Numerics::kBf16KvFp8}) {
    KvCacheSpec spec{1, 2, 10, 16};
    const std::uint64_t row = 48 * dtype_size(kv_type(numerics));
    CHECK(kv_cache_bytes(model, numerics, spec) == 10 * 16 * (2 * row + 4));
  }
}

TEST_CASE("what cannot be is refused") {
  const auto model = testing::must(load_model_spec(testing::source_path("tests/golden/v3")));
  auto refused = [&](KvCacheSpec spec) {
    return !KvCache::create(model, Numerics::kReference, spec).ok();
  };
  CHECK_FALSE(refused({0, 3, 1, 1}));
  CHECK(refused({0, 4, 1, 1}));
  CHECK(refused({-1, 3, 1, 1}));
  CHECK(refused({2, 1, 1, 1}));
  CHECK(refused({0, 3, 0, 1}));
  CHECK(refused({0, 3, 1, 0}));
}

}  // namespace
}  // namespace troupe
