#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ids.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// The uniform number in [0, 1) that decides the token at `position` of a choice: a pure function,
/// so that a replay draws the same.
double sampling_uniform(std::uint64_t seed, std::uint32_t choice, std::int32_t position);

/// A sequence's tokens so far, read through its block table.
struct TokenHistory {
  const TokenId* pool = nullptr;  ///< [blocks, block_size]
  std::span<const std::int32_t> block_table;
  std::int32_t block_size = 1;
  std::int32_t length = 0;  ///< positions 0 .. length - 1
  std::int32_t prompt_length = 0;
  TokenId at(std::int32_t position) const {
    return pool[static_cast<std::size_t>(block_table[position / block_size]) * block_size +
                position % block_size];
  }
};

/// Log-probabilities are cut off here, so that a token that cannot be has a number too.
inline constexpr float kLogprobMin = -9999.0f;

/// Chooses tokens, one row of logits at a time. Holds scratch; not for several threads at once.
class Sampler {
 public:
  explicit Sampler(std::int32_t vocab_size);
  /// What one holds.
  static std::uint64_t bytes(std::int32_t vocab_size) {
    return static_cast<std::uint64_t>(vocab_size) *
           (sizeof(float) + sizeof(double) + sizeof(TokenId) + sizeof(std::int32_t) + 1);
  }

  /// Chooses the token at position `history.length` from `logits` [vocab]. Order: penalties,
  /// temperature, min_p, top_k, top_p, as vLLM has it. Ties go to the lowest id; a NaN logit counts
  /// as minus infinity. Log-probabilities are those of the logits as they came.
  TokenOutput sample(const float* logits, const SamplingParams& params,
                     const TokenHistory& history);

  /// The log-probability of `target` and the `top` most likely tokens (none if not positive).
  TokenOutput logprobs(const float* logits, TokenId target, std::int32_t top);

 private:
  void penalise(const SamplingParams& params, const TokenHistory& history);
  TokenId most_likely() const;
  TokenId draw(const SamplingParams& params, double uniform);
  TokenId draw_sorted(const SamplingParams& params, double uniform, double total);

  std::int32_t vocab_size_;
  std::vector<float> scores_;         // [vocab], after penalties
  std::vector<double> weights_;       // [vocab], probabilities but for a factor; 0 where ruled out
  std::vector<TokenId> order_;        // [<= vocab], candidates
  std::vector<std::int32_t> counts_;  // [vocab], of the output; zero between calls
  std::vector<std::uint8_t> seen_;    // [vocab], in prompt or output; zero between calls
};

}  // namespace troupe
