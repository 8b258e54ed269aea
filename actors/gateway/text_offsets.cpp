#include "actors/gateway/text_offsets.h"

#include "model/tokenizer/utf8.h"

namespace troupe {

std::size_t TextOffsets::next(std::string_view bytes) {
  // Nothing follows half a character but its other half, or the end of the text.
  if (bytes.empty()) return characters_ + (partial_.empty() ? 0 : 1);
  const std::size_t begin = partial_.size();
  const std::string text = partial_ + std::string(bytes);
  partial_.clear();
  std::size_t place = characters_, at = 0;
  while (at < text.size()) {
    const utf8::Step step = utf8::next(std::string_view(text).substr(at));
    if (at <= begin) place = characters_;
    if (step.kind == utf8::Step::Kind::kIncomplete) {
      partial_ = text.substr(at);
      break;
    }
    at += step.length;
    ++characters_;
  }
  return place;
}

void TextOffsets::end_text() {
  characters_ += partial_.empty() ? 0 : 1;
  partial_.clear();
}

}  // namespace troupe
