// Hidden states of a prompt: as many as were asked for, with the same bits however they are made.

#include "tests/model/hidden_of.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

TEST_CASE("hidden states depend on no chunk, shard, rank, block or neighbour") {
  for (const char* folder : {"tests/golden/v3", "tests/golden/qwen2"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const std::vector<TokenId> prompt = some_prompt(checkpoint->spec().vocab, 90);
    const auto with = [&](const Spread& spread, std::size_t chunk) {
      LocalModel model(checkpoint, spread);
      return hidden_of(model, prompt, chunk);
    };
    Spread plain;
    plain.numerics = Numerics::kBf16;
    const std::vector<float> whole = with(plain, 90);
    const auto width = static_cast<std::size_t>(checkpoint->spec().hidden);
    REQUIRE(whole.size() == 90 * width);
    CHECK(std::ranges::any_of(whole, [](float v) { return v != 0; }));
    CHECK(with(plain, 7) == whole);
    Spread other = plain;
    other.cuts = {1};
    other.block_size = 4;
    other.threads = 2;
    CHECK(with(other, 70) == whole);
    other.ranks = 2;
    CHECK(with(other, 33) == whole);

    LocalModel model(checkpoint, plain);
    StepSequence asks = sequence_of(prompt, 0, 90, model.block_size());
    asks.hidden_rows = 1;
    StepSequence speaks = sequence_of(some_prompt(checkpoint->spec().vocab, 9), 0, 9,
                                      model.block_size(), asks.block_table.back() + 1);
    speaks.id = SequenceId{2};
    speaks.sample = true;
    const auto results = model.step({StepId{1}, {speaks, asks}});
    CHECK(results[0].hidden.empty());
    CHECK(results[0].sampled.has_value());
    CHECK_FALSE(results[1].sampled.has_value());
    CHECK(results[1].hidden == std::vector<float>(whole.end() - static_cast<std::ptrdiff_t>(width),
                                                  whole.end()));
  }
}

}  // namespace
}  // namespace troupe::testing
