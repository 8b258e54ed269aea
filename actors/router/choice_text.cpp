#include "actors/router/choice_text.h"

#include <utility>

namespace troupe {

ChoiceText::ChoiceText(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request,
                       std::shared_ptr<const StopStrings> stops) {
  if (!tokenizer) return;
  decoder_.emplace(std::move(tokenizer), StreamDecoder::Options{request.skip_special_tokens,
                                                                request.keep_special});
  shows_end_ = request.include_stop_str_in_output;
  stops_.emplace(std::move(stops));
  if (request.sampling.rules) free_ = request.sampling.rules->min_tokens;
}

std::string ChoiceText::feed(TokenId token, bool ends) {
  if (!decoder_ || (ends && !shows_end_)) return {};
  std::string text = decoder_->feed(token);
  if (free_ == 0) return stops_->feed(text);
  --free_;
  return text;
}

std::string ChoiceText::finish() {
  if (!decoder_ || stopped()) return "";
  std::string text = stops_->feed(decoder_->finish());
  if (!stopped()) text += stops_->finish();
  return text;
}

}  // namespace troupe
