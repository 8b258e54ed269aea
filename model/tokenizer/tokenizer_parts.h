#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/published_patterns.h"
#include "model/tokenizer/token_table.h"
#include "runtime/result.h"

namespace troupe {

/// A tokenizer taken apart: what its files say, checked.
struct TokenizerParts {
  TokenTable tokens;
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokenFinder added_first;       ///< `normalized` false: looked for in the whole text
  AddedTokenFinder added_normalized;  ///< `normalized` true: looked for in what is left
  std::unordered_map<std::string, TokenId> added_ids;
  std::vector<TokenId> prefix;  ///< before the text, with add_special_tokens
  std::vector<TokenId> suffix;  ///< after it
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<TokenId> other_ends;  ///< that files name as eos, too

  /// So many bytes of a text one token stands for at most; none if there is no bound.
  std::optional<std::size_t> bytes_per_token() const;

  /// The pre-tokenizer and the normalizer of a family.
  Status set_pre_tokenizer(const PublishedPreTokenizer& published);
  /// Looks for the token in text from now on. Its id has a token already; its content is new.
  Status find_added(const AddedToken& token);
};

/// A token's bytes and its id.
using Word = std::pair<std::string_view, TokenId>;

/// The merges of a vocabulary whose ids are ranks, as tiktoken has it: any two neighbours join if
/// the whole is a token, the one of the lowest id first. No token has more than `kRankedBytesMax`.
void set_ranked_merges(Bpe& bpe, const std::vector<Word>& words);
inline constexpr std::size_t kRankedBytesMax = 1024;

}  // namespace troupe
