// A row without numbers is its own sequence's trouble, whoever is in the step with it.
#include "model/forward/row_trouble.h"

#include <limits>

#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SequenceId kBad{1};

std::vector<Request> some_requests() {
  std::vector<Request> requests(4);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t t = 0; t < 9 + 4 * i; ++t)
      requests[i].prompt.push_back(static_cast<TokenId>((i * 37 + t * 11) % 100));
    requests[i].new_tokens = 5;
    requests[i].sampling.top_logprobs = 2;
  }
  return requests;
}

/// Spoils one number of one row of the bad sequence, at that position.
auto spoil(std::int32_t position, float value) {
  return [=](const StepPlanBody& plan, std::vector<float>& hidden) {
    std::size_t rows = 0, row = 0;
    bool found = false;
    for (const StepSequence& s : plan.sequences) {
      const auto last = s.first_position + static_cast<std::int32_t>(s.tokens.size());
      if (s.id == kBad && s.first_position <= position && position < last) {
        row = rows + static_cast<std::size_t>(position - s.first_position);
        found = true;
      }
      rows += s.tokens.size();
    }
    if (found) hidden[row * (hidden.size() / rows) + 3] = value;
  };
}

TEST_CASE("numbers are looked at one by one") {
  for (const float odd : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x(67, std::numeric_limits<float>::max());
    CHECK(kernels::all_finite(x.data(), x.size()));
    for (const std::size_t at : {0u, 31u, 66u}) {
      std::vector<float> y = x;
      y[at] = odd;
      CHECK(!kernels::all_finite(y.data(), y.size()));
    }
  }
}

TEST_CASE("a sequence whose row has no numbers is told so, its neighbours get every bit") {
  for (const char* folder : {"tests/golden/v3", "tests/golden/v2-lite"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    for (const Numerics numerics : numerics_of(supported_cpu_families().back()))
      for (const std::int32_t chunk : {4, 64})
        for (const int groups : {1, 3})
          for (const float odd : {kNan, kInfinity}) {
            CAPTURE(std::string(folder));
            CAPTURE(to_string(numerics));
            CAPTURE(chunk);
            CAPTURE(groups);
            Spread spread;
            spread.numerics = numerics;
            spread.cuts = {1};
            spread.block_size = 4;
            spread.positions = 128;
            spread.expert_groups = groups;
            LocalModel model(checkpoint, spread);
            const auto expected = generate(model, some_requests(), chunk);
            std::vector<std::string> troubles;
            model.between_stages = spoil(6, odd);
            model.told = [&](const SequenceResult& result) {
              if (result.trouble.empty()) return;
              CHECK(result.id == kBad);
              CHECK(!result.sampled);
              CHECK(result.prompt.empty());
              troubles.push_back(result.trouble);
            };
            const auto spoilt = generate(model, some_requests(), chunk);
            REQUIRE(!troubles.empty());
            CHECK(troubles[0].find("after layer 0") != std::string::npos);
            CHECK(spoilt[1].tokens.empty());
            for (const std::size_t i : {0u, 2u, 3u}) CHECK(spoilt[i] == expected[i]);
            // The blocks are used again: nothing of it is left for those who come later.
            model.between_stages = {};
            troubles.clear();
            CHECK(generate(model, some_requests(), chunk) == expected);
            CHECK(troubles.empty());
          }
  }
}

}  // namespace
}  // namespace troupe::testing
