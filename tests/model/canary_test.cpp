// The canary's digests tell what its rows became at each boundary of each layer, and nothing else.

#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

struct Canary {
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> digests;
  bool operator==(const Canary&) const = default;
};

StepSequence rows(std::uint64_t id, const std::vector<TokenId>& tokens, std::int32_t first,
                  std::int32_t end, std::int32_t block, const LocalModel& model) {
  StepSequence s;
  s.id = SequenceId{id};
  s.first_position = first;
  s.tokens.assign(tokens.begin() + first, tokens.begin() + end);
  s.prompt_length = 64;
  s.sampling.temperature = 0;
  for (std::int32_t p = 0; p < end; p += model.block_size()) s.block_table.push_back(block++);
  return s;
}

/// 64 tokens and 4 more, `chunk` rows a step, beside another sequence if there is `company`.
Canary run_canary(LocalModel& model, std::int32_t chunk, bool company) {
  std::vector<TokenId> tokens, other;
  for (std::int32_t i = 0; i < 64; ++i) tokens.push_back((i * 37 + 11) % 100);
  for (std::int32_t i = 0; i < 64; ++i) other.push_back((i * 29 + 3) % 100);
  Canary canary;
  std::uint64_t step = 0;
  for (std::int32_t done = 0; done < 64 + 4;) {
    const std::int32_t end = std::min(done + chunk, static_cast<std::int32_t>(tokens.size()));
    StepPlanBody plan;
    plan.step = StepId{++step};
    if (company)
      plan.sequences.push_back(
          rows(1, other, 0, 1 + static_cast<std::int32_t>(step) % 9, 100, model));
    plan.sequences.push_back(rows(2, tokens, done, end, 3, model));
    plan.sequences.back().canary = true;
    plan.sequences.back().sample = end == static_cast<std::int32_t>(tokens.size());
    if (company) plan.sequences.push_back(rows(3, other, 0, 2, 140, model));
    const auto results = model.step(plan);
    if (const auto& sampled = results[company ? 1 : 0].sampled) {
      tokens.push_back(sampled->token);
      canary.tokens.push_back(sampled->token);
    }
    canary.digests.resize(model.digests().size());
    for (std::size_t i = 0; i < canary.digests.size(); ++i) canary.digests[i] += model.digests()[i];
    done = end;
  }
  return canary;
}

TEST_CASE("a canary's digests do not depend on chunks, company, blocks, shards, groups, threads") {
  for (const char* folder : {"tests/golden/v3", "tests/golden/v2-lite"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    for (const Numerics numerics : numerics_of(supported_cpu_families().back())) {
      CAPTURE(std::string(folder));
      CAPTURE(to_string(numerics));
      const auto run = [&](auto change, std::int32_t chunk, bool company) {
        Spread spread;
        spread.numerics = numerics;
        change(spread);
        LocalModel model(checkpoint, spread);
        return run_canary(model, chunk, company);
      };
      const auto nothing = [](Spread&) {};
      const Canary expected = run(nothing, 64, false);
      REQUIRE(expected.digests.size() ==
              2 * static_cast<std::size_t>(checkpoint->spec().num_layers()));
      for (const std::int32_t chunk : {1, 7, 64}) {
        CHECK(run(nothing, chunk, false) == expected);
        CHECK(run(nothing, chunk, true) == expected);
      }
      CHECK(run([](Spread& s) { s.cuts = {1, 2}; }, 7, true) == expected);
      CHECK(run([](Spread& s) { s.expert_groups = 3; }, 64, true) == expected);
      CHECK(run([](Spread& s) { s.block_size = 4; }, 64, true) == expected);
      CHECK(run([](Spread& s) { s.threads = 3; }, 64, false) == expected);
    }
  }
}

TEST_CASE("the first digest that differs names the layer whose numbers do") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const ModelSpec& spec = checkpoint->spec();
  ThreadPool pool(1);
  set_float_mode();
  const kernels::Stream::Options stream{Numerics::kReference, CpuFamily::kBaseline, &pool};
  const auto run = [&](std::int32_t wrong_layer) {
    // The experts of one layer are elsewhere, where something goes wrong.
    ExpertSet::Map here, there;
    for (std::int32_t layer = 0; layer < spec.num_layers(); ++layer)
      if (spec.layers[static_cast<std::size_t>(layer)].has_experts())
        for (std::int32_t e = 0; e < spec.num_experts(); ++e)
          (layer == wrong_layer ? there : here)[{layer, e}] =
              must(load_expert(*checkpoint, Numerics::kReference, layer, e));
    const ExpertSet local(PlacementVersion{1}, here), remote(PlacementVersion{1}, there);
    const std::int32_t last = spec.num_layers() - 1;
    auto cache = must(KvCache::create(spec, Numerics::kReference, {0, last, 8, 16}));
    Forward forward(spec, must(load_shard(*checkpoint, Numerics::kReference, 0, last)), cache,
                    stream);
    ExpertForward experts(spec, stream);
    StepPlanBody plan;
    plan.sequences.resize(1);
    plan.sequences[0].tokens = {5, 6, 7};
    plan.sequences[0].prompt_length = 3;
    plan.sequences[0].block_table = {0};
    plan.sequences[0].canary = true;
    Step step;
    SilentListener silent;
    REQUIRE(forward.begin(step, plan).ok());
    while (forward.advance(step, local, silent) == Cut::kExperts) {
      experts.run(local, step.pairs());
      if (step.missing.empty()) continue;
      CHECK(step.layer == wrong_layer);
      CHECK(experts.run(remote, step.pairs()) > 0);
      step.expert_output(1, 0)[3] ^= std::byte{0x80};
    }
    return step.digests;
  };
  const auto good = run(-1);
  for (std::int32_t layer = 1; layer < spec.num_layers(); ++layer) {
    const auto bad = run(layer);
    const auto first = std::mismatch(good.begin(), good.end(), bad.begin()).first - good.begin();
    CHECK(first == 2 * layer + 1);  // its feed-forward part
  }
}

TEST_CASE("a step without a canary has no digests, also after one that had") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  LocalModel model(checkpoint, {});
  (void)run_canary(model, 64, false);
  CHECK(!model.digests().empty());
  std::vector<TokenId> tokens(64, 5);
  CHECK(model.step({StepId{900}, {rows(1, tokens, 0, 3, 0, model)}}).size() == 1);
  CHECK(model.digests().empty());
}

}  // namespace
}  // namespace troupe::testing
