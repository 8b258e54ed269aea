#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "runtime/sampling_params.h"

namespace troupe {

/// The tokens of a text with their log-probabilities and alternatives, 8 bytes each, as long as an
/// answer needs them.
class KeptTokens {
 public:
  /// `alternatives` of each token are kept; -1: none, as SamplingParams::top_logprobs.
  explicit KeptTokens(std::int32_t alternatives)
      : width_(1 + static_cast<std::size_t>(alternatives > 0 ? alternatives : 0)) {}

  void add(const TokenOutput& token);
  /// Without the last one.
  void take_back() { rows_.resize(rows_.size() - width_); }
  void clear() { rows_.clear(); }
  std::size_t size() const { return rows_.size() / width_; }
  bool empty() const { return rows_.empty(); }

  /// What add() was given.
  TokenOutput at(std::size_t i) const;
  const TokenLogprob& chosen(std::size_t i) const { return rows_[i * width_]; }
  /// Best first, `most` of them; `use` takes a const TokenLogprob&.
  template <class Use>
  void each_alternative(std::size_t i, Use use,
                        std::size_t most = static_cast<std::size_t>(-1)) const {
    for (std::size_t k = 1; k < width_ && k <= most; ++k)
      if (rows_[i * width_ + k].token >= 0) use(rows_[i * width_ + k]);
  }

 private:
  std::size_t width_;
  std::deque<TokenLogprob> rows_;  // width_ a token; a deque never holds them twice to grow.
};

}  // namespace troupe
