#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/pattern.h"
#include "runtime/result.h"

namespace troupe {

/// What happens to the matches of a Split. Names as in tokenizer.json.
enum class SplitBehavior : unsigned char {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

/// Cuts text into the words that BPE runs on: the stages of `pre_tokenizer`, one after the other,
/// each on every piece that the one before left. Mirrors normalizer.rs of Hugging Face's
/// tokenizers.
class PreTokenizer {
 public:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;  ///< the text between the matches counts as matches
  };
  /// A space before each piece that has none: `add_prefix_space` of ByteLevel.
  struct PrefixSpace {};

  void add(Split stage) { stages_.emplace_back(std::move(stage)); }
  void add(PrefixSpace stage) { stages_.emplace_back(stage); }

  std::size_t stages() const { return stages_.size(); }
  /// Whether some text is in no piece.
  bool drops_text() const;

  /// Pieces of `text` (valid UTF-8, not empty) in order. They point into `text` or into `storage`.
  Status split(std::string_view text, Matcher& matcher, std::vector<std::string_view>& pieces,
               std::deque<std::string>& storage) const;

 private:
  std::vector<std::variant<Split, PrefixSpace>> stages_;
};

}  // namespace troupe
