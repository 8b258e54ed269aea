#include "tools/troupe/bench/prompts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/troupe/bench/random.h"
#include "tools/troupe/bench/sharegpt.h"

namespace troupe::bench {
namespace {

constexpr std::array<std::string_view, 120> kWords = {
    "the",     "of",     "and",  "to",     "in",     "is",      "that",    "for",   "was",
    "with",    "as",     "on",   "be",     "at",     "by",      "this",    "had",   "not",
    "are",     "but",    "from", "or",     "have",   "an",      "they",    "which", "one",
    "you",     "were",   "her",  "all",    "she",    "there",   "would",   "their", "we",
    "him",     "been",   "has",  "when",   "who",    "will",    "more",    "no",    "if",
    "out",     "so",     "said", "what",   "up",     "its",     "about",   "into",  "than",
    "them",    "can",    "only", "other",  "new",    "some",    "could",   "time",  "these",
    "two",     "may",    "then", "do",     "first",  "any",     "my",      "now",   "such",
    "like",    "our",    "over", "man",    "me",     "even",    "most",    "made",  "after",
    "also",    "did",    "many", "before", "must",   "through", "back",    "years", "where",
    "much",    "your",   "way",  "well",   "down",   "should",  "because", "each",  "just",
    "those",   "people", "how",  "too",    "little", "state",   "good",    "very",  "make",
    "world",   "still",  "own",  "see",    "men",    "work",    "long",    "get",   "here",
    "between", "both",   "life"};

/// Streams of a seed: what the prompts share, and each prompt's own.
constexpr std::uint64_t kSharedStream = 1, kOwnStream = 1'000'000;

/// Appends `tokens` tokens, or about so many.
void add(Prompt& prompt, const Vocabulary& vocabulary, std::uint64_t tokens, Random& random) {
  if (!vocabulary.ids.empty()) {
    for (std::uint64_t i = 0; i < tokens; ++i)
      prompt.ids.push_back(vocabulary.ids[random.below(vocabulary.ids.size())]);
    return;
  }
  const double words = std::round(static_cast<double>(tokens) / vocabulary.tokens_per_word);
  for (double i = 0; i < std::max(1.0, words); ++i) {
    if (!prompt.text.empty()) prompt.text += ' ';
    prompt.text += kWords[random.below(kWords.size())];
  }
}

std::uint64_t drawn(std::uint64_t length, double ratio, Random& random) {
  const auto low = static_cast<std::uint64_t>(static_cast<double>(length) * (1 - ratio));
  const auto high =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(length) * (1 + ratio)));
  return random.between(std::max<std::uint64_t>(1, low), std::max<std::uint64_t>(1, high));
}

/// kRandom, and kSessions: there the first turn of all begins alike, as agents of one make do, and
/// later turns add a quarter of its length, as what a tool says.
class RandomPrompts : public PromptSource {
 public:
  RandomPrompts(const PromptOptions& options, Vocabulary vocabulary)
      : o_(options), vocabulary_(std::move(vocabulary)) {}

  Prompt prompt(std::uint64_t number) const override {
    const std::uint64_t turns = o_.kind == PromptOptions::Kind::kSessions ? o_.turns : 1;
    const bool first = number % turns == 0;
    Prompt prompt;
    if (first && o_.prefix_len > 0) {
      Random shared(o_.seed, kSharedStream);
      add(prompt, vocabulary_, o_.prefix_len, shared);
    }
    Random own(o_.seed, kOwnStream + number);
    const std::uint64_t length =
        first ? o_.input_len : std::max<std::uint64_t>(1, o_.input_len / 4);
    add(prompt, vocabulary_, drawn(length, o_.range_ratio, own), own);
    prompt.output_tokens = drawn(o_.output_len, o_.range_ratio, own);
    return prompt;
  }

 private:
  const PromptOptions o_;
  const Vocabulary vocabulary_;
};

class PrefixRepetition : public PromptSource {
 public:
  PrefixRepetition(const PromptOptions& options, Vocabulary vocabulary)
      : o_(options), vocabulary_(std::move(vocabulary)) {}

  Prompt prompt(std::uint64_t number) const override {
    Random own(o_.seed, kOwnStream + number);
    Random shared(o_.seed, kSharedStream + own.below(o_.prefixes));
    Prompt prompt;
    add(prompt, vocabulary_, o_.repeated_len, shared);
    add(prompt, vocabulary_, o_.suffix_len, own);
    prompt.output_tokens = o_.repeated_output_len;
    return prompt;
  }

 private:
  const PromptOptions o_;
  const Vocabulary vocabulary_;
};

/// The conversations in the order that the seed says; from the beginning again once all were.
class ShareGpt : public PromptSource {
 public:
  ShareGpt(const PromptOptions& options, std::vector<Conversation> conversations)
      : output_len_(options.sharegpt_output_len), conversations_(std::move(conversations)) {
    Random random(options.seed);
    for (std::size_t i = conversations_.size(); i > 1; --i)
      std::swap(conversations_[i - 1], conversations_[random.below(i)]);
  }

  Prompt prompt(std::uint64_t number) const override {
    const Conversation& said = conversations_[number % conversations_.size()];
    return {{}, said.question, output_len_ != 0 ? output_len_ : said.answer_tokens};
  }

 private:
  const std::uint64_t output_len_;
  std::vector<Conversation> conversations_;
};

}  // namespace

std::string word_list() {
  std::string text;
  for (const std::string_view word : kWords) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::size_t word_count() { return kWords.size(); }

const char* dataset_name(PromptOptions::Kind kind) {
  switch (kind) {
    case PromptOptions::Kind::kRandom:
      return "random";
    case PromptOptions::Kind::kPrefixRepetition:
      return "prefix";
    case PromptOptions::Kind::kShareGpt:
      return "sharegpt";
    case PromptOptions::Kind::kSessions:
      return "sessions";
  }
  return "";
}

Status set_dataset(const std::string& said, const std::vector<PromptOptions::Kind>& taken,
                   PromptOptions& options) {
  using Kind = PromptOptions::Kind;
  std::string all;
  const std::size_t colon = std::min(said.find(':'), said.size());
  const std::string name = said.substr(0, colon);
  for (const Kind kind : taken) {
    all += (all.empty()            ? ""
            : kind == taken.back() ? " or "
                                   : ", ") +
           std::string(dataset_name(kind)) + (kind == Kind::kShareGpt ? ":FILE" : "");
    if (name != dataset_name(kind)) continue;
    const std::string path = said.substr(std::min(colon + 1, said.size()));
    if (kind == Kind::kShareGpt && path.empty())
      return invalid_argument("--dataset sharegpt needs its file: --dataset sharegpt:FILE.");
    if (kind != Kind::kShareGpt && colon < said.size())
      return invalid_argument("--dataset " + name + " has no file: leave '" + said.substr(colon) +
                              "' out.");
    if (path.starts_with("~/"))
      return invalid_argument("The shell does not expand the ~ of --dataset " + said +
                              "; write the whole path, as sharegpt:$HOME" + path.substr(1) + ".");
    options.kind = kind;
    options.path = path;
    return {};
  }
  return invalid_argument("--dataset must be " + all + ", not '" + said + "'.");
}

Result<std::unique_ptr<PromptSource>> make_prompts(const PromptOptions& options,
                                                   Vocabulary vocabulary) {
  using Kind = PromptOptions::Kind;
  if (options.kind == Kind::kPrefixRepetition)
    return std::unique_ptr<PromptSource>(
        std::make_unique<PrefixRepetition>(options, std::move(vocabulary)));
  if (options.kind != Kind::kShareGpt)
    return std::unique_ptr<PromptSource>(
        std::make_unique<RandomPrompts>(options, std::move(vocabulary)));
  auto conversations = read_sharegpt(options.path);
  if (!conversations.ok()) return conversations.error();
  return std::unique_ptr<PromptSource>(
      std::make_unique<ShareGpt>(options, std::move(*conversations)));
}

}  // namespace troupe::bench
