#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/ids.h"
#include "runtime/pooling.h"
#include "runtime/step.h"

namespace troupe::testing {

inline constexpr TokenId kVocab = 50;
inline constexpr TokenId kEos = 7;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 32);
}

inline TokenOutput scored(std::uint64_t hash, TokenId token, std::int32_t top) {
  TokenOutput output{token, 0.0f, {}};
  if (top < 0) return output;
  output.logprob = -static_cast<float>(mix(hash, static_cast<std::uint64_t>(token)) % 1000) / 100;
  for (std::int32_t k = 0; k < top; ++k)
    output.top.push_back({static_cast<TokenId>((hash + static_cast<std::uint64_t>(k)) % kVocab),
                          -static_cast<float>(k)});
  return output;
}

/// What a row's hidden state is here: two numbers.
inline constexpr std::uint32_t kHiddenWidth = 2;
inline void append_hidden(std::uint64_t hash, std::vector<float>& hidden) {
  hidden.push_back(static_cast<float>(hash % 4096));
  hidden.push_back(-static_cast<float>(hash / 4096 % 4096));
}

/// A token's row: everything before it.
inline std::uint64_t row_hash(std::uint64_t before, TokenId token) {
  return mix(before, static_cast<std::uint64_t>(token));
}

inline TokenOutput next_token(std::uint64_t hash, const SamplingParams& sampling,
                              std::int32_t position) {
  std::uint64_t draw = mix(hash, static_cast<std::uint64_t>(position));
  if (sampling.temperature > 0) draw = mix(mix(draw, sampling.seed), sampling.choice);
  return scored(hash, static_cast<TokenId>(draw % kVocab), sampling.top_logprobs);
}

/// What a sequence must become, whatever happens to it: the model as a pure function.
struct Expected {
  std::vector<TokenOutput> output;
  std::vector<TokenOutput> prompt_logprobs;
  FinishReason finish = FinishReason::kLength;
};

inline Expected expected_of(const std::vector<TokenId>& prompt, const SamplingParams& sampling,
                            std::uint32_t max_tokens, bool stops, std::int32_t prompt_logprobs) {
  Expected expected;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    hash = row_hash(hash, prompt[i]);
    if (prompt_logprobs >= 0 && i + 1 < prompt.size())
      expected.prompt_logprobs.push_back(scored(hash, prompt[i + 1], prompt_logprobs));
  }
  auto position = static_cast<std::int32_t>(prompt.size());
  while (expected.output.size() < max_tokens) {
    expected.output.push_back(next_token(hash, sampling, position++));
    const TokenId token = expected.output.back().token;
    if (stops && token == kEos) {
      expected.finish = FinishReason::kStop;
      break;
    }
    hash = row_hash(hash, token);
  }
  return expected;
}

inline std::vector<float> expected_hidden(const std::vector<TokenId>& prompt, Pooling pooling) {
  std::vector<float> hidden;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    hash = row_hash(hash, prompt[i]);
    if (pooling == Pooling::kAll || (pooling == Pooling::kLast && i + 1 == prompt.size()))
      append_hidden(hash, hidden);
  }
  return hidden;
}

/// The shards of a replica in small. It keeps each row in the slot that the block table names and
/// reads a row's whole context back from there, as attention does: a wrong table, a block that two
/// sequences share or a row that was never computed gives other tokens.
class FakeShards {
 public:
  FakeShards(std::int32_t blocks, std::int32_t block_size)
      : block_size_(block_size), slots_(static_cast<std::size_t>(blocks * block_size), -1) {}

  std::vector<SequenceResult> run(StepPlanBody plan) {
    std::vector<SequenceResult> results;
    digests_.clear();
    for (StepSequence& sequence : plan.sequences) {
      std::vector<std::int32_t>& table = tables_[sequence.table_slot];
      if (sequence.table_base == 0) table.clear();
      REQUIRE(table.size() == static_cast<std::size_t>(sequence.table_base));
      table.insert(table.end(), sequence.block_table.begin(), sequence.block_table.end());
      sequence.block_table = table;
      results.push_back(run(sequence));
    }
    return results;
  }
  /// Of the canary in the newest plan: one boundary.
  const std::vector<std::uint64_t>& digests() const { return digests_; }

 private:
  SequenceResult run(const StepSequence& sequence) {
    SequenceResult result{sequence.id, {}, {}};
    if (sequence.prompt_logprobs) result.prompt.resize(sequence.tokens.size());
    std::uint64_t hash = 0;
    for (std::int32_t p = 0; p < sequence.first_position; ++p)
      hash = row_hash(hash, slot(sequence, p));
    for (std::size_t row = 0; row < sequence.tokens.size(); ++row) {
      const auto p = sequence.first_position + static_cast<std::int32_t>(row);
      slot(sequence, p) = sequence.tokens[row];
      hash = row_hash(hash, sequence.tokens[row]);
      if (sequence.canary) {
        digests_.resize(1);
        digests_[0] += mix(hash, static_cast<std::uint64_t>(p));
      }
      if (sequence.prompt_logprobs && sequence.targets[row] >= 0)
        result.prompt[row] = scored(hash, sequence.targets[row], sequence.sampling.top_logprobs);
      if (row + static_cast<std::size_t>(sequence.hidden_rows) >= sequence.tokens.size())
        append_hidden(hash, result.hidden);
      if (sequence.sample && row + 1 == sequence.tokens.size())
        result.sampled = next_token(hash, sequence.sampling, p + 1);
    }
    return result;
  }

  TokenId& slot(const StepSequence& sequence, std::int32_t position) {
    const auto index = static_cast<std::size_t>(position / block_size_);
    assert(index < sequence.block_table.size());
    return slots_[static_cast<std::size_t>(sequence.block_table[index] * block_size_ +
                                           position % block_size_)];
  }

  std::int32_t block_size_;
  std::vector<TokenId> slots_;
  std::map<std::int32_t, std::vector<std::int32_t>> tables_;  // by slot
  std::vector<std::uint64_t> digests_;
};

}  // namespace troupe::testing
