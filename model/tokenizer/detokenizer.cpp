#include "model/tokenizer/detokenizer.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace troupe {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)) {}

std::string StreamDecoder::feed(TokenId token) {
  const bool kept =
      std::find(options_.keep.begin(), options_.keep.end(), token) != options_.keep.end();
  if (options_.skip_special_tokens && tokenizer_->is_special(token) && !kept) return {};
  pending_ += tokenizer_->token_bytes(token);
  std::string text;
  pending_.erase(0, utf8::append_complete(text, pending_));
  return text;
}

std::string StreamDecoder::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(utf8::kReplacement);
}

}  // namespace troupe
