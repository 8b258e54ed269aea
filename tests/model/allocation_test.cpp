// Once warm, a step allocates nothing.

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/model/local_model.h"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// Not inlined: GCC 12 would take malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace troupe::testing {
namespace {

TEST_CASE("a warm step allocates nothing") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const auto& config = checkpoint->config();
  ExpertSet::Map map;
  for (const Numerics numerics : supported_numerics()) {
    CAPTURE(to_string(numerics));
    for (std::int32_t layer = 1; layer < config.num_layers; ++layer)
      for (std::int32_t e = 0; e < config.num_experts; ++e)
        map[{layer, e}] = must(load_expert(*checkpoint, numerics, layer, e));
    const ExpertSet experts(PlacementVersion{1}, map);
    auto cache = must(KvCache::create(config, numerics, {0, config.num_layers, 64, 16}));
    ThreadPool pool(2);
    ShardForward forward(config, numerics, must(load_shard(*checkpoint, numerics, 0, 4)), cache,
                         pool);
    StepPlanBody plan;
    for (std::int32_t i = 0; i < 4; ++i) {
      StepSequence s;
      s.block_table = {i};
      s.tokens = std::vector<TokenId>(static_cast<std::size_t>(i == 3 ? 9 : 1), 5);
      s.sample = true;
      s.sampling.top_p = 0.9f;
      s.sampling.top_logprobs = 0;
      s.sampling.repetition_penalty = 1.1f;
      plan.sequences.push_back(s);
    }
    StepRun run;
    std::vector<ShardForward::Missing> missing;
    const auto step = [&] {
      REQUIRE(forward.begin(run, plan, nullptr).ok());
      while (forward.advance(run) == Progress::kNeedExperts) {
        forward.run_local_experts(run, experts, missing);
        forward.run_shared(run);
      }
    };
    step();
    step();
    const std::size_t before = allocations.load();
    step();
    const std::size_t after = allocations.load();
    CHECK(after == before);
    CHECK(run.results().size() == 4);
  }
}

}  // namespace
}  // namespace troupe::testing
