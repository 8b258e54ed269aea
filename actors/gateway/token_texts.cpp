#include "actors/gateway/token_texts.h"

#include <memory>
#include <utility>

#include "model/tokenizer/utf8.h"

namespace troupe {

TokenTexts::TokenTexts(Options options)
    : shows_end_(options.shows_end),
      free_(options.min_tokens),
      stops_(std::make_shared<const StopStrings>(std::move(options.stops), options.shows_end)) {}

std::string TokenTexts::feed(std::string_view bytes, bool ends) {
  StopMatcher next = stops_;
  std::string open = bytes_, whole;
  open += bytes;
  open.erase(0, utf8::append_complete(whole, open));
  std::string text = free_ == 0 ? next.feed(whole) : whole;
  if (ends && !shows_end_ && !next.matched()) return {};
  if (free_ > 0) --free_;
  stops_ = std::move(next);
  bytes_ = std::move(open);
  size_ += whole.size();
  return text;
}

std::string TokenTexts::finish() {
  if (stops_.matched()) return {};
  std::string text;
  if (!bytes_.empty()) {
    text = stops_.feed(utf8::kReplacement);
    size_ += utf8::kReplacement.size();
    bytes_.clear();
  }
  return stops_.matched() ? text : text + stops_.finish();
}

}  // namespace troupe
