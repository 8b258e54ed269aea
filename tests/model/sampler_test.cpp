// Sampling from one row of logits.

#include "model/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "runtime/float_mode.h"

namespace troupe {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// A history over two blocks of four, the second first in memory.
struct History {
  explicit History(std::vector<TokenId> tokens, std::int32_t prompt_length) : pool(8) {
    for (std::size_t p = 0; p < tokens.size(); ++p) pool[(p < 4 ? 4 : 0) + p % 4] = tokens[p];
    view = {pool.data(), table, 4, static_cast<std::int32_t>(tokens.size()), prompt_length};
  }
  std::vector<TokenId> pool;
  std::int32_t table[2] = {1, 0};
  TokenHistory view;
};

/// A sampler of one row at a time, by the CPU.
class RowByRow {
 public:
  explicit RowByRow(std::size_t vocab)
      : stream_(kernels::Stream::Options{}), sampler_(static_cast<std::int32_t>(vocab), 1) {
    set_float_mode();
  }

  TokenOutput sample(std::vector<float> logits, const SamplingParams& params,
                     const TokenHistory& history) {
    sampler_.clear();
    sampler_.sample(0, params, history);
    return run(logits);
  }
  /// Of the tokens with these bits alone.
  TokenOutput sample_of(std::vector<float> logits, const SamplingParams& params,
                        std::uint32_t mask) {
    sampler_.clear();
    sampler_.use_mask(sampler_.sample(0, params, {}));
    sampler_.mask(0)[0] = mask;
    return run(logits);
  }
  TokenOutput logprobs(std::vector<float> logits, TokenId target, std::int32_t top) {
    sampler_.clear();
    sampler_.logprobs(0, target, top);
    return run(logits);
  }
  bool finite() const { return sampler_.finite(0); }

 private:
  TokenOutput run(std::vector<float>& logits) {
    const auto vocab = static_cast<std::int64_t>(logits.size());
    sampler_.run(stream_, kernels::host_tensor(logits.data(), DType::kF32, 1, vocab));
    return sampler_.output(0);
  }

  kernels::Stream stream_;
  Sampler sampler_;
};

TokenId pick(const std::vector<float>& logits, const SamplingParams& params,
             const TokenHistory& history = {}) {
  return RowByRow(logits.size()).sample(logits, params, history).token;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

/// How often each token comes over many positions.
std::map<TokenId, double> frequencies(const std::vector<float>& logits,
                                      const SamplingParams& params) {
  constexpr int kDraws = 20000;
  RowByRow sampler(logits.size());
  std::map<TokenId, double> found;
  const std::vector<TokenId> pool(kDraws);
  const std::int32_t block = 0;
  for (int i = 0; i < kDraws; ++i) {
    TokenHistory history{pool.data(), {&block, 1}, kDraws, i, 0};
    found[sampler.sample(logits, params, history).token] += 1.0 / kDraws;
  }
  return found;
}

TEST_CASE("Philox4x32-10 gives the published answers") {
  // Random123's kat_vectors.
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the uniform number depends on seed, choice and position alone") {
  const double u = sampling_uniform(7, 0, 3);
  CHECK(u == sampling_uniform(7, 0, 3));
  CHECK(u != sampling_uniform(8, 0, 3));
  CHECK(u != sampling_uniform(7 + (1ull << 32), 0, 3));
  CHECK(u != sampling_uniform(7, 1, 3));
  CHECK(u != sampling_uniform(7, 0, 4));
  for (int i = 0; i < 1000; ++i) {
    CHECK(sampling_uniform(1, 2, i) >= 0);
    CHECK(sampling_uniform(1, 2, i) < 1);
  }
}

TEST_CASE("greedy takes the highest, of equal ones the lowest id") {
  CHECK(pick({1, 3, 2}, greedy()) == 1);
  CHECK(pick({1, 3, 3, 3}, greedy()) == 1);
  CHECK(pick({kNan, -5, kNan}, greedy()) == 1);
  CHECK(pick({-kInf, -kInf, -2}, greedy()) == 2);
}

TEST_CASE("draws follow the probabilities") {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  SamplingParams params;
  params.seed = 5;
  auto found = frequencies(logits, params);
  CHECK(found[0] == doctest::Approx(0.5).epsilon(0.05));
  CHECK(found[1] == doctest::Approx(0.3).epsilon(0.05));
  CHECK(found[2] == doctest::Approx(0.15).epsilon(0.1));

  params.temperature = 0.5f;  // squares them
  found = frequencies(logits, params);
  CHECK(found[0] == doctest::Approx(0.25 / 0.365).epsilon(0.05));

  params.temperature = 1;
  params.top_k = 2;
  found = frequencies(logits, params);
  CHECK(found.size() == 2);
  CHECK(found[0] == doctest::Approx(0.625).epsilon(0.05));

  params.top_k = 0;
  params.top_p = 0.75f;  // 0.5 is short of it, 0.8 is not
  found = frequencies(logits, params);
  CHECK(found.size() == 2);
  params.top_p = 0.01f;
  CHECK(frequencies(logits, params).size() == 1);

  params.top_p = 1;
  params.min_p = 0.25f;  // of the best: 0.125
  found = frequencies(logits, params);
  CHECK(found.size() == 3);
  CHECK(found[3] == 0);
}

TEST_CASE("top_p sorts as far as it must") {
  // 4000 equal tokens: half of them reach 0.5, and they are those of the lowest ids.
  const std::vector<float> logits(4000, 0.25f);
  SamplingParams params;
  params.top_p = 0.5f;
  TokenId highest = 0;
  for (const auto& [token, share] : frequencies(logits, params)) highest = std::max(highest, token);
  CHECK(highest < 2001);
  CHECK(highest > 1900);
}

TEST_CASE("penalties read the history through the block table") {
  const std::vector<float> logits = {2.0f, 1.5f, 1.0f, -1.0f};
  auto params = greedy();
  // Prompt 0, output 1 1 0 2: positions 0..4.
  const History history({0, 1, 1, 0, 2}, 1);
  CHECK(pick(logits, params, history.view) == 0);
  params.presence_penalty = 0.6f;  // 1.4 0.9 0.4
  CHECK(pick(logits, params, history.view) == 0);
  params.presence_penalty = 2.0f;  // 0 -0.5 -1 -1
  CHECK(pick(logits, params, history.view) == 0);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.6f;  // 1.4 0.3 0.4 -1
  CHECK(pick(logits, params, history.view) == 0);
  params.frequency_penalty = -1.0f;  // 3 3.5 2 -1
  CHECK(pick(logits, params, history.view) == 1);
  params.frequency_penalty = 0;
  params.repetition_penalty = 4.0f;  // 0.5 0.375 0.25 -1
  CHECK(pick({2.0f, 1.5f, 1.0f, 0.9f}, params, history.view) == 3);
  // A token of the prompt alone has no presence or frequency, but counts as a repetition.
  const History prompt_only({0, 0, 0, 0}, 4);
  params = greedy();
  params.presence_penalty = 2;
  params.frequency_penalty = 2;
  CHECK(pick(logits, params, prompt_only.view) == 0);
  params.repetition_penalty = 2;  // 1.0 1.5
  CHECK(pick(logits, params, prompt_only.view) == 1);
}

TEST_CASE("penalties leave nothing behind") {
  RowByRow sampler(4);
  const std::vector<float> logits = {2.0f, 1.5f, 1.0f, -1.0f};
  auto params = greedy();
  params.repetition_penalty = 4;
  const History history({0}, 1), none({}, 0);
  CHECK(sampler.sample(logits, params, history.view).token == 1);
  CHECK(sampler.sample(logits, params, none.view).token == 0);
}

TEST_CASE("log-probabilities are those of the raw logits") {
  RowByRow sampler(4);
  const std::vector<float> logits = {0, 1, 1, -kInf};
  auto params = greedy();
  params.temperature = 0;
  params.top_logprobs = 3;
  params.repetition_penalty = 100;
  const History history({1}, 1);
  const auto out = sampler.sample(logits, params, history.view);
  const double sum = 1 + 2 * std::exp(1.0);
  CHECK(out.token == 2);
  CHECK(out.logprob == doctest::Approx(1 - std::log(sum)));
  REQUIRE(out.top.size() == 3);
  CHECK(out.top[0].token == 1);
  CHECK(out.top[1].token == 2);
  CHECK(out.top[2].token == 0);
  CHECK(out.top[2].logprob == doctest::Approx(-std::log(sum)));
  CHECK(sampler.logprobs(logits, 3, 0).logprob == kernels::kLogprobMin);
  CHECK(sampler.logprobs(logits, 3, 0).top.empty());
  CHECK(sampler.logprobs(logits, 0, 50).top.size() == 4);
}

TEST_CASE("whatever the logits and parameters, a token of the vocabulary comes out") {
  const std::vector<std::vector<float>> rows = {
      {kNan, kNan, kNan},  {-kInf, -kInf, -kInf}, {kInf, kInf, 0},
      {kNan, kInf, -kInf}, {3e38f, -3e38f, 0},    {0, 0, 0},
      {kNan, 1, -kInf},
  };
  const float values[] = {0, 1, -1, 1e-30f, 1e30f, kNan, kInf, 0.5f};
  const History history({0, 1, 2, 2}, 1);
  for (const auto& row : rows)
    for (const float a : values)
      for (const float b : values) {
        SamplingParams params;
        params.temperature = a;
        params.top_p = b;
        params.top_logprobs = 3;
        CHECK(pick(row, params, history.view) < 3);
        params.min_p = b;
        params.top_p = 0.5f;
        params.top_k = 2;
        CHECK(pick(row, params, history.view) < 3);
        params.repetition_penalty = a;
        params.presence_penalty = b;
        params.frequency_penalty = b;
        CHECK(pick(row, params, history.view) >= 0);
        CHECK(pick(row, params, history.view) < 3);
      }
}

TEST_CASE("a bias is added before penalties, to tokens that were used and to others") {
  TokenRules rules;
  rules.bias = {{1, 2.5f}, {3, -100}};
  SamplingParams params = greedy();
  params.rules = std::make_shared<const TokenRules>(rules);
  CHECK(pick({1, 0, 2, 9}, params) == 1);
  CHECK(pick({1, 0, 3, 9}, params) == 2);
  params.frequency_penalty = 1;
  const History used({1, 1, 0, 2}, 1);                    // the output so far: 1, 0, 2
  CHECK(pick({1, 0.75f, 2, 9}, params, used.view) == 1);  // 0, 2.25, 1, -91
  CHECK(pick({1, 0.25f, 3, 9}, params, used.view) == 2);
  params.repetition_penalty = 2;  // (0 + 2.5) / 2 - 1 = 0.25; what has a bias only is not penalised
  CHECK(pick({1, 0, 2, 9}, params, used.view) == 1);
}

TEST_CASE("a mask leaves what it has, whatever the scores are") {
  RowByRow sampler(4);
  CHECK(sampler.sample_of({1, 2, 3, 9}, greedy(), 0b0111).token == 2);
  CHECK(sampler.sample_of({1, 2, 3, 9}, greedy(), 0b0001).token == 0);
  SamplingParams params;
  params.top_logprobs = 2;
  params.top_p = 0.1f;
  const TokenOutput only = sampler.sample_of({1, 2, 3, 9}, params, 0b0010);
  CHECK(only.token == 1);
  // Log-probabilities are those of the logits as they came.
  CHECK(only.top[0].token == 3);
  CHECK(only.logprob < -6);
  // Penalties that make a score infinite still leave no other token.
  TokenRules rules;
  rules.bias = {{1, -100}};
  params.rules = std::make_shared<const TokenRules>(rules);
  CHECK(sampler.sample_of({1, -3.4e38f, 3, 9}, params, 0b0010).token == 1);
}

}  // namespace
}  // namespace troupe
