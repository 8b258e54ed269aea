#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/sample.h"
#include "kernels/stream.h"
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

/// Asks rows of logits for tokens and log-probabilities (kernels/sample.h), where the logits are.
///
///     clear ─► sample, logprobs ... ─► run ─► finite, output
///
/// Keeps its memory. Not for several threads at once.
class Sampler {
 public:
  Sampler(std::int32_t vocab_size, int threads);
  /// What one holds for each thread beside its calls: who was seen in a history.
  static std::uint64_t bytes(std::int32_t vocab_size) {
    return static_cast<std::uint64_t>(vocab_size) * sizeof(std::int32_t);
  }

  void clear();
  /// The token at position `history.length`; what `history` points at must stay until run() is
  /// over. The number of the call, as the next one's.
  std::size_t sample(std::int64_t row, const SamplingParams& params, const TokenHistory& history);
  /// That call has a mask (kernels::SampleLists), which is to be filled in before run().
  void use_mask(std::size_t call);
  /// [mask_words(vocab)], all clear at first. Valid until the next call.
  std::span<std::uint32_t> mask(std::size_t call);
  /// The log-probability of `target` and the `top` most likely tokens (none if not positive).
  std::size_t logprobs(std::int64_t row, TokenId target, std::int32_t top);

  /// Of logits [rows, vocab]; `stream` has no more threads than this.
  void run(kernels::Stream& stream, const kernels::Tensor& logits);

  /// Whether all logits of a call's row are finite.
  bool finite(std::size_t call) const { return results_[call].finite != 0; }
  TokenOutput output(std::size_t call) const;

 private:
  void find_adjusted(std::size_t call, std::vector<std::int32_t>& counts);
  void gather_adjusted(kernels::Stream& stream);

  const std::int32_t vocab_size_;
  std::vector<kernels::SampleCall> calls_;
  std::vector<TokenHistory> histories_;                   // of calls; without penalties empty
  std::vector<std::shared_ptr<const TokenRules>> rules_;  // of calls; without a bias null
  std::vector<std::vector<std::int32_t>> counts_;  // of each thread [vocab], zero between calls
  std::vector<kernels::AdjustedToken> adjusted_;   // of calls, one after the other
  std::vector<std::uint32_t> masks_;
  std::int32_t top_columns_ = 0;
  std::vector<kernels::SampleResult> results_;  // of calls
  std::vector<TokenLogprob> top_;               // [calls, top_columns]
};

}  // namespace troupe
