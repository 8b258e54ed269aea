#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe::bench {

/// What a server makes of words, as far as it tells.
struct Vocabulary {
  /// Prompts are made of these ids; none: of words.
  std::vector<std::int32_t> ids;
  double tokens_per_word = 1;
  bool counted = false;  ///< tokens_per_word was measured
};

/// One question, as ids or as text.
struct Prompt {
  std::vector<std::int32_t> ids;  ///< empty: it is text
  std::string text;
  std::uint64_t output_tokens = 0;  ///< asked for
};

/// The words that prompts are made of, with spaces between them: what /tokenize is asked about.
std::string word_list();
std::size_t word_count();

/// Where prompts come from. The n-th is the same for the same options and seed, whatever came
/// before; in sessions it is what the n-th turn adds to its conversation.
struct PromptOptions {
  enum class Kind : unsigned char { kRandom, kPrefixRepetition, kShareGpt, kSessions };
  Kind kind = Kind::kRandom;
  std::uint64_t seed = 0;
  // kRandom and kSessions
  std::uint64_t input_len = 1024, output_len = 128, prefix_len = 0;
  double range_ratio = 0;  ///< lengths are uniform in len x (1 +- ratio)
  // kPrefixRepetition
  std::uint64_t prefixes = 10, repeated_len = 256, suffix_len = 256, repeated_output_len = 128;
  // kSessions
  std::uint64_t turns = 5;
  // kShareGpt
  std::string path;
  std::uint64_t sharegpt_output_len = 0;  ///< 0: as long as the file's answer, a token for 4 bytes
};

/// random, prefix, sharegpt or sessions.
const char* dataset_name(PromptOptions::Kind kind);
/// Reads what --dataset says: such a name, of those that are `taken`, and sharegpt:FILE.
/// kInvalidArgument names the flag.
Status set_dataset(const std::string& said, const std::vector<PromptOptions::Kind>& taken,
                   PromptOptions& options);

class PromptSource {
 public:
  virtual ~PromptSource() = default;
  virtual Prompt prompt(std::uint64_t number) const = 0;
};

/// kNotFound, kCorrupt: what is wrong with the file.
Result<std::unique_ptr<PromptSource>> make_prompts(const PromptOptions& options,
                                                   Vocabulary vocabulary);

}  // namespace troupe::bench
