#include "runtime/kept_tokens.h"

namespace troupe {

void KeptTokens::add(const TokenOutput& token) {
  rows_.push_back({token.token, token.logprob});
  for (std::size_t k = 0; k + 1 < width_; ++k)
    rows_.push_back(k < token.top.size() ? token.top[k] : TokenLogprob{-1, 0});
}

TokenOutput KeptTokens::at(std::size_t i) const {
  TokenOutput token{chosen(i).token, chosen(i).logprob, {}};
  each_alternative(i, [&](const TokenLogprob& other) { token.top.push_back(other); });
  return token;
}

}  // namespace troupe
