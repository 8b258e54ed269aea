#include "model/tokenizer/tokenizer_parts.h"

#include <algorithm>
#include <cassert>

#include "model/tokenizer/json_fields.h"

namespace troupe {

std::optional<std::size_t> TokenizerParts::bytes_per_token() const {
  const std::optional<std::size_t> shrink = normalizer.shrink_max();
  const std::optional<std::size_t> first = added_first.longest();
  const std::optional<std::size_t> later = added_normalized.longest();
  if (!shrink || !first || !later || pre_tokenizer.drops_text()) return std::nullopt;
  return std::max<std::size_t>({tokens.longest(), *first, *later, 1}) * *shrink;
}

Status TokenizerParts::set_pre_tokenizer(const PublishedPreTokenizer& published) {
  if (published.nfc) normalizer.add(NormalForm::kNfc);
  for (const std::string_view expression : published.patterns) {
    Result<Pattern> pattern = Pattern::compile(expression);
    if (!pattern) return pattern.error();
    pre_tokenizer.add(PreTokenizer::Split{std::move(*pattern)});
  }
  return {};
}

Status TokenizerParts::find_added(const AddedToken& token) {
  added_ids.emplace(token.content, token.id);
  if (token.special) tokens.mark_special(token.id);
  if (!token.normalized) return added_first.add(token);
  Result<std::string> content = normalizer.apply(token.content, kAddedTokenBytesMax);
  if (!content) {
    return corrupt("the added token " + in_quotes(token.content) +
                   " is too long: " + content.error().message);
  }
  if (content->empty()) return {};
  AddedToken sought = token;
  sought.content = std::move(*content);
  return added_normalized.add(sought);
}

void set_ranked_merges(Bpe& bpe, const std::vector<Word>& words) {
  struct Found {
    TokenId left;
    TokenId right;
    TokenId whole;
  };
  std::unordered_map<std::string_view, TokenId> ids(words.begin(), words.end());
  std::vector<Found> merges;
  for (const auto& [bytes, whole] : words) {
    assert(bytes.size() <= kRankedBytesMax);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(bytes.substr(cut));
      if (right != ids.end()) merges.push_back({left->second, right->second, whole});
    }
  }
  bpe.reserve_merges(merges.size());
  for (const Found& merge : merges) {
    bpe.add_merge(merge.left, merge.right, {static_cast<std::uint32_t>(merge.whole), merge.whole});
  }
}

}  // namespace troupe
