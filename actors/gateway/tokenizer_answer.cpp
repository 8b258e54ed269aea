#include "actors/gateway/tokenizer_answer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "actors/gateway/answer_logprobs.h"
#include "runtime/limits.h"

namespace troupe {

std::optional<ApiError> TokenizerAnswer::take(const char* field, std::size_t bytes) {
  if (bytes <= room_.one_bytes_max()) return share_.take(bytes);
  return bad_field(field, std::string(field) + ": the answer takes " + std::to_string(bytes) +
                              " bytes until it is sent, of at most " +
                              std::to_string(room_.one_bytes_max()) + "; send it in parts.");
}

/// How many tokens a text has is known when it has them: meanwhile they are bounded by the body,
/// and by the one worker that reads large ones.
std::optional<ApiError> TokenizerAnswer::encode(const TokenizeRequest& request) {
  Result<std::vector<TokenId>> tokens = model_.prompt_tokens(request.of);
  if (!tokens) return to_api_error(tokens.error());
  tokens_ = std::move(tokens).value();
  tokens_->shrink_to_fit();
  strings_ = request.strings;
  const bool text = std::holds_alternative<std::string>(request.of.prompt);
  return take(text ? "prompt" : "messages", tokens_->size() * sizeof(TokenId));
}

std::optional<ApiError> TokenizerAnswer::decode(const DetokenizeRequest& request) {
  std::size_t bytes = 0;
  for (const TokenId id : request.tokens) bytes += model_.token_bytes(id).size();
  if (auto error = take("tokens", bytes)) return error;
  Result<std::string> text = model_.decode(request.tokens);
  if (!text) return to_api_error(text.error());
  text_ = std::move(text).value();
  text_.shrink_to_fit();
  share_.add(std::max(text_.size(), bytes) - bytes);
  return std::nullopt;
}

bool TokenizerAnswer::write_piece(std::string& out) {
  const bool last = tokens_ ? write_tokens() : write_text();
  out += json_.take();
  return last;
}

/// The ids, and behind them the strings.
bool TokenizerAnswer::write_tokens() {
  const std::size_t count = tokens_->size();
  if (next_ == 0) json_.begin_object().key("tokens").begin_array();
  for (; next_ < count; ++next_) {
    if (json_.text().size() >= limits::kHttpPieceBytes) return false;
    json_.value((*tokens_)[next_]);
  }
  if (next_ == count && !std::exchange(ids_done_, true)) {
    json_.end_array().member("count", count);
    json_.member("max_model_len", model_.max_model_len());
    if (strings_) json_.key("token_strs").begin_array();
  }
  if (strings_) {
    const TokenNames names{model_, false};
    for (; next_ < 2 * count; ++next_) {
      if (json_.text().size() >= limits::kHttpPieceBytes) return false;
      json_.value(names.of((*tokens_)[next_ - count]));
    }
    json_.end_array();
  }
  json_.end_object();
  return true;
}

bool TokenizerAnswer::write_text() {
  if (next_ == 0) json_.begin_object().key("prompt").begin_text();
  const std::string_view rest = std::string_view(text_).substr(next_);
  const std::string_view piece = rest.substr(0, whole_characters(rest, limits::kHttpPieceBytes));
  json_.more_text(piece);
  next_ += piece.size();
  if (next_ < text_.size()) return false;
  json_.end_text().end_object();
  return true;
}

}  // namespace troupe
