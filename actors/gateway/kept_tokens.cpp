#include "actors/gateway/kept_tokens.h"

namespace troupe {

void KeptTokens::add(const TokenOutput& token) {
  rows_.push_back({token.token, token.logprob});
  for (std::size_t k = 0; k + 1 < width_; ++k)
    rows_.push_back(k < token.top.size() ? token.top[k] : TokenLogprob{-1, 0});
}

}  // namespace troupe
