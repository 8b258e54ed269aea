// What steps take beside weights and caches stays below what plans count on.

#include "model/forward/step_memory.h"

#include "model/forward/experts.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

/// One step of `sequences`, each with so many tokens after `known`.
StepPlanBody plan_of(std::int32_t sequences, std::int32_t tokens, std::int32_t known,
                     std::int32_t blocks) {
  StepPlanBody plan;
  for (std::int32_t i = 0; i < sequences; ++i) {
    StepSequence s;
    for (std::int32_t b = 0; b < blocks; ++b) s.block_table.push_back(i * blocks + b);
    s.first_position = known;
    s.tokens.assign(static_cast<std::size_t>(tokens), 5);
    s.sample = true;
    plan.sequences.push_back(std::move(s));
  }
  return plan;
}

struct Shape {
  std::int32_t sequences, tokens, known;
};

TEST_CASE("the arenas of real steps stay within the bound") {
  constexpr Shape kShapes[] = {{1, 512, 0}, {8, 256, 0}, {64, 1, 127}, {4, 64, 200}, {1, 1, 2000}};
  for (const char* name : {"v3", "v2-lite", "v3-awq", "llama", "qwen3-moe", "gpt-oss"}) {
    CAPTURE(std::string(name));
    const auto checkpoint =
        must(Checkpoint::open(source_path(std::string("tests/golden/") + name)));
    const ModelSpec& spec = checkpoint->spec();
    const std::int32_t last = spec.num_layers() - 1;
    for (const Numerics numerics : numerics_of(supported_cpu_families().back())) {
      CAPTURE(to_string(numerics));
      ExpertSet::Map map;
      for (std::int32_t layer = 0; layer <= last; ++layer)
        for (std::int32_t e = 0; e < spec.num_experts(); ++e)
          if (spec.layers[static_cast<std::size_t>(layer)].has_experts())
            map[{layer, e}] = must(load_expert(*checkpoint, numerics, layer, e));
      const ExpertSet experts(PlacementVersion{1}, map);
      const auto weights = must(load_shard(*checkpoint, numerics, 0, last));
      constexpr int kThreads = 3;
      ThreadPool pool(kThreads);
      set_float_mode();
      ExpertForward routed(spec, {numerics, supported_cpu_families().back(), &pool});
      for (const Shape& shape : kShapes) {
        const std::int32_t blocks = (shape.known + shape.tokens + 15) / 16;
        auto cache =
            must(KvCache::create(spec, numerics, {0, last, blocks * shape.sequences, 16}));
        Forward forward(spec, weights, cache,
                        {numerics, supported_cpu_families().back(), &pool});
        Step run;
        SilentListener silent;
        StepLoad load;
        load.numerics = numerics;
        load.positions = shape.known + shape.tokens;
        load.threads = kThreads;
        // Smaller steps first: the arena grows.
        for (const std::int32_t part : {4, 2, 1}) {
          const std::int32_t tokens = std::max(1, shape.tokens / part);
          const auto plan = plan_of(shape.sequences, tokens, shape.known, blocks);
          REQUIRE(forward.begin(run, plan).ok());
          while (forward.advance(run, experts, silent) == Cut::kExperts)
            routed.run(experts, run.pairs());
          REQUIRE(run.at == Step::At::kDone);
        }
        load.rows = std::int64_t{shape.sequences} * shape.tokens;
        const std::uint64_t bound = forward_scratch_bytes(spec, 0, last, load);
        CHECK(forward.scratch_bytes() <= bound);
        if (load.rows < 2048) continue;
        MESSAGE(std::string(name) << ", " << load.rows << " rows: "
                                  << (forward.scratch_bytes() >> 10) << " of " << (bound >> 10)
                                  << " KiB");
        CHECK(forward.scratch_bytes() * 16 > bound);
      }
    }
  }
}

TEST_CASE("the arena of an expert pass stays within the bound, and near it") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const ModelSpec& spec = checkpoint->spec();
  const Numerics numerics = numerics_of(supported_cpu_families().back()).back();
  ExpertSet::Map map;
  for (std::int32_t e = 0; e < spec.num_experts(); ++e)
    map[{1, e}] = must(load_expert(*checkpoint, numerics, 1, e));
  const ExpertSet experts(PlacementVersion{1}, map);
  ThreadPool pool(2);
  set_float_mode();
  ExpertForward forward(spec, {numerics, supported_cpu_families().back(), &pool});
  const std::size_t row = static_cast<std::size_t>(spec.hidden) * dtype_size(wire_type(numerics));
  // Half of the rows want one expert: a call may hold more than those that are taken together.
  constexpr std::size_t kPairs = 20000;
  std::vector<std::byte> input(row), output(row * kPairs);
  std::vector<const std::byte*> rows(kPairs, input.data());
  std::vector<std::byte*> outputs;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < kPairs; ++i) {
    outputs.push_back(output.data() + i * row);
    ids.push_back(i % 2 == 0 ? 3 : static_cast<std::int32_t>(i) % spec.num_experts());
  }
  forward.run(experts, {1, rows, ids, outputs});
  StepLoad load;
  load.numerics = numerics;
  load.threads = 2;
  CHECK(forward.scratch_bytes() <= expert_scratch_bytes(spec, load, kPairs));
  CHECK(forward.scratch_bytes() * 8 > expert_scratch_bytes(spec, load, kPairs));
}

TEST_CASE("what is counted on grows with what a step may be") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const ModelSpec& spec = checkpoint->spec();
  StepLoad load{Numerics::kBf16, 2048, 2048, 1, 16};
  const auto of = [&](const StepLoad& l) {
    return shard_memory_bytes(spec, 0, spec.num_layers() - 1, l);
  };
  const std::uint64_t base = of(load);
  StepLoad more = load;
  more.rows *= 2;
  CHECK(of(more) > base);
  more = load;
  more.in_flight = 4;
  CHECK(of(more) > base);
  more = load;
  more.threads = 64;
  CHECK(of(more) > base);
  CHECK(shard_memory_bytes(spec, 0, 0, load) < base);
  CHECK(group_memory_bytes(spec, load, 0) == 0);
}

TEST_CASE("plans count on what the rank that takes most computes with") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const StepLoad load{Numerics::kBf16, 2048, 2048, 1, 16};
  const std::vector<ModelSpec> ranks = split_into(checkpoint->spec(), 4);
  const ComputeCosts costs = compute_costs(ranks, load);
  std::uint64_t most = 0;
  for (const ModelSpec& rank : ranks)
    most = std::max(most, shard_memory_bytes(rank, 0, rank.num_layers() - 1, load));
  CHECK(most > 0);
  CHECK(costs.shard(0, ranks[0].num_layers() - 1) == most);
  CHECK(costs.group(64) == compute_costs(checkpoint->spec(), load).group(64));
}

}  // namespace
}  // namespace troupe::testing
