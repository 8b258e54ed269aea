#include "actors/gateway/text_tokens.h"

#include <algorithm>

namespace troupe {

void TextTokens::add(const TokenOutput& token, std::size_t size) {
  entries_.push_back({token, size_, kOpen});
  end(size);
}

void TextTokens::end(std::size_t size) {
  if (size == size_) return;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->end == kOpen; ++entry)
    entry->end = size;
  size_ = size;
}

std::vector<TokenOutput> TextTokens::take(std::size_t bytes, std::size_t held) {
  const std::size_t end = read_ - std::min(held, read_);
  const std::size_t begin = end - std::min(bytes, end);
  std::vector<TokenOutput> out;
  for (Entry& entry : entries_) {
    if (bytes == 0 || entry.begin >= end) break;
    if (entry.given || entry.end <= begin) continue;
    out.push_back(entry.token);
    entry.given = true;
  }
  while (!entries_.empty() && entries_.front().end <= end) entries_.pop_front();
  return out;
}

}  // namespace troupe
