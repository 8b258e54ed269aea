// What a shard refuses before it computes.

#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

TEST_CASE("a plan that makes no sense is refused") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  LocalModel model(checkpoint, {});
  StepSequence good;
  good.tokens = {1, 2, 3};
  good.prompt_length = 3;
  good.block_table = {0};
  auto refuses = [&](auto change) {
    StepSequence s = good;
    change(s);
    Step run;
    return !model.first_shard().begin(run, {StepId{1}, {s}}).ok();
  };
  CHECK_FALSE(refuses([](StepSequence&) {}));
  CHECK(refuses([](StepSequence& s) { s.tokens.clear(); }));
  CHECK(refuses([](StepSequence& s) { s.tokens[1] = -1; }));
  CHECK(refuses([](StepSequence& s) { s.tokens[1] = 512; }));
  CHECK(refuses([](StepSequence& s) { s.first_position = -1; }));
  CHECK(refuses([](StepSequence& s) { s.hidden_rows = -1; }));
  CHECK(refuses([](StepSequence& s) {
    s.hidden_rows = static_cast<std::int32_t>(s.tokens.size()) + 1;
  }));
  CHECK(refuses([](StepSequence& s) { s.first_position = 14; }));
  CHECK(refuses([](StepSequence& s) { s.first_position = 2147483647; }));
  CHECK(refuses([](StepSequence& s) { s.block_table.clear(); }));
  CHECK(refuses([](StepSequence& s) { s.block_table = {-1}; }));
  CHECK(refuses([](StepSequence& s) { s.block_table = {256}; }));
  CHECK(refuses([](StepSequence& s) { s.prompt_length = -1; }));
  CHECK(refuses([](StepSequence& s) { s.prompt_logprobs = true; }));
  CHECK(refuses([](StepSequence& s) { s.prompt_logprobs = true, s.targets = {1, 512, -1}; }));
  Step run;
  CHECK_FALSE(model.first_shard().begin(run, {StepId{1}, {}}).ok());
  const auto hidden = Payload::of(std::make_shared<Buffer>(3 * 128 * sizeof(float)));
  CHECK_FALSE(model.first_shard().begin(run, {StepId{1}, {good}}, hidden).ok());
}

}  // namespace
}  // namespace troupe::testing
