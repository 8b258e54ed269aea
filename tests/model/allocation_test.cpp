// Once warm, a step allocates nothing.

#include "tests/allocations.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

TEST_CASE("a warm step allocates nothing") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const ModelSpec& spec = checkpoint->spec();
  ExpertSet::Map map;
  for (const Numerics numerics : numerics_of(supported_cpu_families().back())) {
    CAPTURE(to_string(numerics));
    for (std::int32_t layer = 1; layer < spec.num_layers(); ++layer)
      for (std::int32_t e = 0; e < spec.num_experts(); ++e)
        map[{layer, e}] = must(load_expert(*checkpoint, numerics, layer, e));
    const ExpertSet experts(PlacementVersion{1}, map);
    auto cache = must(KvCache::create(spec, numerics, {0, spec.num_layers() - 1, 64, 16}));
    ThreadPool pool(2);
    set_float_mode();
    Forward forward(spec, must(load_shard(*checkpoint, numerics, 0, spec.num_layers() - 1)), cache,
                    {numerics, supported_cpu_families().back(), &pool});
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
    ExpertForward routed(spec, {numerics, supported_cpu_families().back(), &pool});
    Step run;
    SilentListener silent;
    const auto step = [&] {
      REQUIRE(forward.begin(run, plan).ok());
      while (forward.advance(run, experts, silent) == Cut::kExperts)
        routed.run(experts, run.pairs());
      REQUIRE(run.at == Step::At::kDone);
    };
    step();
    step();
    const std::size_t before = allocations();
    step();
    const std::size_t after = allocations();
    CHECK(after == before);
    CHECK(run.results.size() == 4);
  }
}

}  // namespace
}  // namespace troupe::testing
