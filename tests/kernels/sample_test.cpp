// Tokens and log-probabilities of rows of logits, by every back-end.

#include "kernels/sample.h"

#include <algorithm>

#include "runtime/split_mix.h"
#include "support.h"
#include "tests/kernels/twin_sample.h"

namespace troupe::kernels {
namespace {

/// Rows and what is asked of them.
struct SampleQuestions {
  std::size_t vocab;
  std::vector<std::vector<float>> rows;
  std::vector<SampleCall> calls;
  std::vector<AdjustedToken> adjusted;
  std::vector<std::uint32_t> masks;
};

/// How logits look: spread, flat, equal, steep enough for denormals, and with what is no number.
std::vector<float> logits_row(std::size_t vocab, unsigned kind, unsigned seed) {
  auto row = random_values(vocab, seed, kind == 1 ? 0.01f : kind == 3 ? 800.0f : 8.0f);
  if (kind == 2)
    for (float& x : row) x = std::round(x / 4);
  if (kind == 4) std::fill(row.begin(), row.end(), -INFINITY);
  if (kind == 4) row[vocab / 2] = -3;
  if (kind == 5) row[vocab / 3] = row[0] = std::nanf("");
  if (kind == 6) row[vocab - 1] = INFINITY;
  if (kind == 7) std::fill(row.begin(), row.end(), 0.5f);
  if (kind == 8) std::fill(row.begin(), row.end(), std::nanf(""));
  return row;
}

SampleQuestions sample_questions(std::size_t vocab, int count, unsigned seed) {
  SplitMix random(seed);
  const auto words = static_cast<std::size_t>(mask_words(static_cast<std::int64_t>(vocab)));
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random.next() % sizeof...(values)];
  };
  SampleQuestions q{vocab, {}, {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    q.rows.push_back(
        logits_row(vocab, static_cast<unsigned>(i % 9), seed + static_cast<unsigned>(i)));
    SampleCall c;
    c.row = i;
    c.top = one_of(-1, 0, 3, 20);
    c.temperature = one_of(0.0f, 0.3f, 1.0f, 1.0f, 2.0f, 1e30f);
    c.top_p = one_of(0.0f, 1e-6f, 0.5f, 0.9f, 0.999999f, 1.0f, 1.0f);
    c.top_k = one_of(0, 0, 1, 5, 50, static_cast<int>(vocab), 1 << 20);
    c.min_p = one_of(0.0f, 0.0f, 0.05f, 1.0f, 1.5f);
    c.uniform = one_of(0.0, 0.25, 0.5, 0.75, 0.999, 1 - 0x1p-53);
    if (i % 3 == 0) {
      c.repetition_penalty = one_of(1.0f, 1.3f, 0.5f);
      c.presence_penalty = one_of(0.0f, 0.7f, -2.0f);
      c.frequency_penalty = one_of(0.0f, 0.4f, -1.0f);
      c.first_adjusted = static_cast<std::int32_t>(q.adjusted.size());
      for (std::size_t t = random.next() % 3; t < vocab; t += 1 + random.next() % 9)
        q.adjusted.push_back({static_cast<TokenId>(t),
                              static_cast<std::int32_t>(random.next() % 5) - 1,
                              one_of(0.0f, 0.0f, 5.0f, -100.0f, -INFINITY)});
      c.adjusted = static_cast<std::int32_t>(q.adjusted.size()) - c.first_adjusted;
    }
    if (i % 2 == 0) {
      c.mask = static_cast<std::int32_t>(q.masks.size() / words);
      const std::uint64_t sparse = one_of(~0u, 0x1010101u, 0u);
      for (std::size_t w = 0; w < words; ++w)
        q.masks.push_back(static_cast<std::uint32_t>(random.next() & sparse));
      const std::size_t id = random.next() % vocab;
      q.masks[static_cast<std::size_t>(c.mask) * words + id / 32] |= 1u << id % 32;
      if (vocab % 32 != 0) q.masks.back() &= (1u << vocab % 32) - 1;
    }
    if (i % 7 == 6) c.target = static_cast<TokenId>(random.next() % vocab);
    q.calls.push_back(c);
  }
  return q;
}

std::vector<SampleAnswer> sampled(Stream& stream, const SampleQuestions& q) {
  std::vector<float> logits;
  for (const auto& row : q.rows) logits.insert(logits.end(), row.begin(), row.end());
  const std::size_t columns = 20;
  std::vector<SampleResult> results(q.calls.size());
  std::vector<TokenLogprob> top(q.calls.size() * columns);
  sample(stream, matrix(logits, static_cast<std::int64_t>(q.rows.size())), q.calls,
         {q.adjusted, q.masks}, {results.data(), top.data(), static_cast<std::int64_t>(columns)});
  std::vector<SampleAnswer> answers;
  for (std::size_t i = 0; i < q.calls.size(); ++i) {
    const auto count = std::min(q.vocab, static_cast<std::size_t>(std::max(q.calls[i].top, 0)));
    const auto first = top.begin() + static_cast<std::ptrdiff_t>(i * columns);
    answers.push_back({results[i], {first, first + static_cast<std::ptrdiff_t>(count)}});
  }
  return answers;
}

void check_samples(const Family& family, const SampleQuestions& q) {
  TestStream stream(family, 2);
  const auto got = sampled(stream, q);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const SampleCall& c = q.calls[i];
    CAPTURE(to_string(family));
    INFO("vocab " << q.vocab << " kind " << c.row % 9 << " T " << c.temperature << " top_k "
                  << c.top_k << " top_p " << c.top_p << " min_p " << c.min_p << " uniform "
                  << c.uniform << " adjusted " << c.adjusted << " mask " << c.mask << " target "
                  << c.target);
    const SampleAnswer e =
        exact_sample(c, q.rows[static_cast<std::size_t>(c.row)], q.adjusted, q.masks);
    CHECK(got[i].result.token == e.result.token);
    CHECK(got[i].result.finite == e.result.finite);
    CHECK(std::bit_cast<std::uint32_t>(got[i].result.logprob) ==
          std::bit_cast<std::uint32_t>(e.result.logprob));
    CHECK(got[i].top == e.top);
  }
}

TEST_CASE("tokens and log-probabilities have the bits of their definition, for every family") {
  for (const Family& family : families()) {
    for (const std::size_t vocab : {1u, 2u, 7u})
      check_samples(family, sample_questions(vocab, 120, 1));
    check_samples(family, sample_questions(1500, 90, 2));
  }
}

TEST_CASE("so have those of a large vocabulary") {
  for (const Family& family : families()) check_samples(family, sample_questions(129280, 9, 3));
}

}  // namespace
}  // namespace troupe::kernels
