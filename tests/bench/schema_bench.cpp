// Compiles JSON schemas and follows answers under them: schema_peers.py runs it beside XGrammar and
// llguidance.
#include <time.h>

#include <bit>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_matcher.h"
#include "model/grammar/grammar_writer.h"
#include "model/grammar/vocabulary.h"
#include "model/tokenizer/tokenizer.h"

namespace {

using Json = nlohmann::json;
using troupe::TokenId;

constexpr std::size_t kWalkTokensMax = 400;

/// Of this process' processor, as the peers' clock: what else the machine does does not count.
double microseconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::shared_ptr<const troupe::Vocabulary> vocabulary_of(const troupe::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  std::vector<bool> special;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    texts.emplace_back(tokenizer.token_bytes(id));
    special.push_back(tokenizer.is_special(id));
  }
  return troupe::Vocabulary::make(std::move(texts), special, tokenizer.vocab_size());
}

/// Tokens that end texts, lists and objects.
std::vector<TokenId> closing_tokens(const troupe::Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (std::size_t id = 0; id < vocabulary.texts.size(); ++id)
    if (vocabulary.texts[id].size() <= 2 && vocabulary.texts[id].find_first_of("\"}]") == 0)
      ids.push_back(static_cast<TokenId>(id));
  return ids;
}

class Schema {
 public:
  Schema(const std::string& schema, std::shared_ptr<const troupe::Vocabulary> vocabulary,
         const std::vector<TokenId>* closing)
      : vocabulary_(std::move(vocabulary)), closing_(closing) {
    const double start = microseconds();
    grammar_ = compile(schema);
    compile_us_ = microseconds() - start;
  }

  /// {"compile_us", "error"} or, too, "tests": [{"accepted", "mask_us": a number for each token}].
  Json follow(const Json& tests) {
    Json answer{{"compile_us", compile_us_}};
    if (!grammar_) {
      answer["error"] = grammar_.error().message;
      return answer;
    }
    answer["tests"] = Json::array();
    for (const Json& ids : tests) answer["tests"].push_back(follow_one(ids));
    return answer;
  }

  /// Answers of tokens that are drawn among those that may come next; only those that end.
  Json walks(std::size_t count, std::mt19937_64& random) {
    Json texts = Json::array();
    for (std::size_t i = 0; grammar_ && i < count; ++i)
      if (auto text = walk(random)) texts.push_back(std::move(*text));
    return texts;
  }

 private:
  static troupe::Result<std::shared_ptr<const troupe::CompiledGrammar>> compile(
      const std::string& schema) {
    troupe::GrammarWriter writer;
    const auto root = writer.json_schema(schema);
    if (!root) return root.error();
    return troupe::CompiledGrammar::compile(std::move(writer).finish(*root));
  }

  std::vector<std::uint32_t> bits() const {
    return std::vector<std::uint32_t>((vocabulary_->texts.size() + 31) / 32);
  }

  Json follow_one(const Json& ids) {
    troupe::GrammarMatcher matcher(*grammar_, vocabulary_->trie);
    std::vector<std::uint32_t> mask = bits();
    Json times = Json::array();
    for (const Json& id : ids) {
      const double start = microseconds();
      matcher.allowed(mask);
      const bool accepted = matcher.accept(id.get<TokenId>());
      times.push_back(microseconds() - start);
      if (!accepted) return {{"accepted", false}, {"mask_us", times}};
    }
    return {{"accepted", matcher.complete()}, {"mask_us", times}};
  }

  std::optional<std::string> walk(std::mt19937_64& random) {
    troupe::GrammarMatcher matcher(*grammar_, vocabulary_->trie);
    std::vector<std::uint32_t> mask = bits();
    std::string text;
    for (std::size_t i = 0; i < kWalkTokensMax; ++i) {
      if (matcher.complete()) return text;
      matcher.allowed(mask);
      const auto id = drawn(mask, random);
      if (!id || !matcher.accept(*id)) return std::nullopt;
      text += vocabulary_->texts[static_cast<std::size_t>(*id)];
    }
    return std::nullopt;
  }

  /// One of the tokens that may come next. Few of them lead to an end: every second time it is one
  /// that closes something, if there is one.
  std::optional<TokenId> drawn(const std::vector<std::uint32_t>& mask, std::mt19937_64& random) {
    const auto may = [&](TokenId id) {
      return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
    };
    if (random() % 2 == 0) {
      std::vector<TokenId> closing;
      for (const TokenId id : *closing_)
        if (may(id)) closing.push_back(id);
      if (!closing.empty()) return closing[random() % closing.size()];
    }
    std::size_t count = 0;
    for (const std::uint32_t word : mask) count += static_cast<std::size_t>(std::popcount(word));
    if (count == 0) return std::nullopt;
    std::size_t left = random() % count, at = 0;
    for (; left >= static_cast<std::size_t>(std::popcount(mask[at])); ++at)
      left -= static_cast<std::size_t>(std::popcount(mask[at]));
    std::uint32_t word = mask[at];
    while (left-- > 0) word &= word - 1;
    return static_cast<TokenId>(at * 32 + static_cast<std::size_t>(std::countr_zero(word)));
  }

  std::shared_ptr<const troupe::Vocabulary> vocabulary_;
  const std::vector<TokenId>* closing_;
  troupe::Result<std::shared_ptr<const troupe::CompiledGrammar>> grammar_ =
      troupe::invalid_argument("not compiled");
  double compile_us_ = 0;
};

}  // namespace

/// schema_bench MODEL: the folder of a tokenizer. Each line of the input is {"schema": text,
/// "tests": lists of ids, "walks": how many, "seed"}, each of the output what Schema has to say.
int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: schema_bench MODEL\n";
    return 2;
  }
  const auto tokenizer = troupe::Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.error().message << "\n";
    return 1;
  }
  const auto vocabulary = vocabulary_of(**tokenizer);
  const std::vector<TokenId> closing = closing_tokens(*vocabulary);
  for (std::string line; std::getline(std::cin, line);) {
    const Json order = Json::parse(line);
    Schema schema(order["schema"].get<std::string>(), vocabulary, &closing);
    Json answer = schema.follow(order["tests"]);
    std::mt19937_64 random(order["seed"].get<std::uint64_t>());
    answer["walks"] = schema.walks(order["walks"].get<std::size_t>(), random);
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
