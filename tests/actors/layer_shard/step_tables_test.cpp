#include "actors/layer_shard/step_tables.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/actors/layer_shard/stand.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

StepSequence told(std::uint64_t id, std::int32_t slot, std::int32_t base,
                  std::vector<std::int32_t> blocks) {
  StepSequence sequence;
  sequence.id = SequenceId{id};
  sequence.tokens = {5};
  sequence.table_slot = slot;
  sequence.table_base = base;
  sequence.block_table = std::move(blocks);
  return sequence;
}

StepPlan planned(std::uint64_t step, std::vector<StepSequence> sequences) {
  StepPlan plan;
  plan.body.step = StepId{step};
  plan.body.sequences = std::move(sequences);
  return plan;
}

template <class M>
Envelope of_replica(M message) {
  return from(troupe::testing::kReplicaAddress, message_of(std::move(message)));
}

std::vector<std::int32_t> table_in(const LayerShard::Effects& effects) {
  const auto begun = all<BeginStep>(effects);
  REQUIRE(begun.size() == 1);
  const StepSequence& sequence = std::get<StepPlan>(*begun[0].plan).body.sequences.at(0);
  CHECK(sequence.table_base == 0);
  return sequence.block_table;
}

}  // namespace

TEST_CASE("a shard appends to the tables that it was told") {
  StepTables tables;
  const auto complete = [&](std::vector<StepSequence> sequences) {
    return tables.complete(planned(1, std::move(sequences)));
  };
  const auto blocks = [](const Result<MessagePtr>& plan, std::size_t sequence) {
    REQUIRE(plan.ok());
    return std::get<StepPlan>(**plan).body.sequences.at(sequence).block_table;
  };
  using Blocks = std::vector<std::int32_t>;
  const auto first = complete({told(1, 0, 0, {4, 5}), told(2, 3, 0, {9})});
  CHECK(blocks(first, 0) == Blocks{4, 5});
  const auto second = complete({told(1, 0, 2, {}), told(2, 3, 1, {5, 6})});
  CHECK(blocks(second, 0) == Blocks{4, 5});
  CHECK(blocks(second, 1) == Blocks{9, 5, 6});
  // Whole again: it replaces what was there.
  CHECK(blocks(complete({told(2, 3, 0, {7, 8, 9})}), 0) == Blocks{7, 8, 9});

  CHECK_FALSE(complete({told(1, 0, 1, {6})}).ok());  // shorter than it is here
  CHECK_FALSE(complete({told(1, 0, 3, {6})}).ok());  // longer
  CHECK_FALSE(complete({told(4, 0, 2, {6})}).ok());  // another's
  CHECK_FALSE(complete({told(5, 7, 1, {6})}).ok());  // nobody's
  // The slot is another sequence's from now on.
  CHECK(blocks(complete({told(6, 0, 0, {1})}), 0) == Blocks{1});
  CHECK_FALSE(complete({told(1, 0, 2, {})}).ok());
}

TEST_CASE("a sequence's rules come with its whole table, and stay") {
  StepTables tables;
  const auto rules_after = [&](const StepSequence& sequence) {
    const auto plan = tables.complete(planned(1, {sequence}));
    REQUIRE(plan.ok());
    return std::get<StepPlan>(**plan).body.sequences.at(0).sampling.rules;
  };
  const auto rules = std::make_shared<const TokenRules>();
  StepSequence first = told(1, 0, 0, {4});
  first.sampling.rules = rules;
  CHECK(rules_after(first) == rules);
  CHECK(rules_after(told(1, 0, 1, {5})) == rules);
  CHECK(rules_after(told(1, 0, 2, {})) == rules);
  CHECK(rules_after(told(2, 0, 0, {4})) == nullptr);  // another's slot now
}

TEST_CASE("a plan that builds on a table which is not here fails its step, and only that") {
  LayerShard shard(config());
  LayerShard::Effects refused, again, next;
  play(shard, of_replica(planned(1, {told(1, 0, 2, {6})})), kStart, refused);
  REQUIRE(heard<StepFailed>(refused));
  CHECK(heard<StepFailed>(refused)->step == StepId{1});
  CHECK(heard<StepFailed>(refused)->error.code == ErrorCode::kUnavailable);
  CHECK(all<BeginStep>(refused).empty());
  CHECK(shard.steps() == 0);
  play(shard, of_replica(planned(2, {told(1, 0, 0, {4, 5, 6})})), kStart, again);
  CHECK(table_in(again) == std::vector<std::int32_t>{4, 5, 6});
  play(shard, of_replica(planned(3, {told(1, 0, 3, {7})})), kStart, next);
  CHECK(table_in(next) == std::vector<std::int32_t>{4, 5, 6, 7});
}

TEST_CASE("the plan of a step that was given up is heard, and one that comes twice counts once") {
  LayerShard shard(config());
  LayerShard::Effects ignored, twice, next;
  play(shard, of_replica(StepAbort{0, StepId{1}}), kStart, ignored);
  play(shard, of_replica(planned(1, {told(1, 0, 0, {4})})), kStart, ignored);
  CHECK(all<BeginStep>(ignored).empty());
  const Envelope second = of_replica(planned(2, {told(1, 0, 1, {5})}));
  play(shard, second, kStart, twice);
  play(shard, second, kStart, twice);
  CHECK(table_in(twice) == std::vector<std::int32_t>{4, 5});
  play(shard, of_replica(planned(3, {told(1, 0, 2, {})})), kStart, next);
  CHECK(table_in(next) == std::vector<std::int32_t>{4, 5});
}
