// Tokenizers of other files than tokenizer.json: tiktoken.model and a GGUF file's keys.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/gguf_vocabulary.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

using VocabularyIds = std::vector<TokenId>;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

const std::vector<std::string> kWords = {"bc", "ab", "abc", "aa", "12"};

/// 256 bytes, then the words.
std::string ranks() {
  std::string text;
  for (int b = 0; b < 256; ++b) {
    text += base64(std::string(1, static_cast<char>(b))) + " " + std::to_string(b) + "\n";
  }
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    text += base64(kWords[i]) + " " + std::to_string(256 + i) + "\n";
  }
  return text;
}

constexpr const char* kConfig = R"({"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]",
  "added_tokens_decoder": {"261": {"content": "[BOS]", "special": true},
                           "263": {"content": "<think>", "special": false},
                           "600": {"content": "<far>", "special": true}}})";

GgufVocabulary gguf() {
  GgufVocabulary vocabulary;
  vocabulary.pre = "llama-bpe";
  for (int b = 0; b < 256; ++b) {
    std::string letter;
    utf8::append(letter, byte_to_char(static_cast<unsigned char>(b)));
    vocabulary.tokens.push_back(letter);
  }
  vocabulary.tokens.insert(vocabulary.tokens.end(), kWords.begin(), kWords.end());
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"<s>", "é <x>", "[PAD263]"});
  vocabulary.types.assign(vocabulary.tokens.size(), 1);
  vocabulary.types[261] = 3;
  vocabulary.types[262] = 4;
  vocabulary.types[263] = 5;
  vocabulary.merges = {"b c", "a b", "a bc", "a a", "1 2"};
  vocabulary.bos = 261;
  return vocabulary;
}

std::shared_ptr<const Tokenizer> made(const GgufVocabulary& vocabulary) {
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
  return *tokenizer;
}

}  // namespace

TEST_CASE("tiktoken.model: neighbours join by the rank of the whole") {
  const auto loaded = Tokenizer::from_tiktoken(ranks(), kConfig);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
  const Tokenizer& tokenizer = **loaded;
  CHECK(*tokenizer.encode("abc", true) == VocabularyIds{258});
  CHECK(*tokenizer.encode("aabc", false) == VocabularyIds{'a', 258});  // bc (256) before aa (259)
  CHECK(*tokenizer.encode("[BOS]aa<think>12", false) == VocabularyIds{261, 259, 263, 260});
  CHECK(*tokenizer.encode("<|reserved_token_262|>", false) == VocabularyIds{262});
  CHECK(*tokenizer.encode("<far>", false) == VocabularyIds{600});
  CHECK(tokenizer.encode("<|reserved_token_261|>", false)->size() > 1);  // that is [BOS]
  CHECK(tokenizer.is_special(262));
  CHECK(!tokenizer.is_special(263));
  CHECK(tokenizer.bos() == 261);
  CHECK(tokenizer.decode(VocabularyIds{261, 258, 263}, true) == "abc<think>");
}

TEST_CASE("a tiktoken.model that is wrong is refused, naming the line") {
  const std::string good = ranks();
  const std::pair<std::string, const char*> cases[] = {
      {"", "no tokens"},
      {"YQ== 0\n", "256 bytes"},
      {good + "YWJi\n", "line 262"},
      {good + "YWJi x\n", "line 262"},
      {good + "YWJi 261 \n", "line 262"},
      {good + "YWJ 261\n", "line 262"},
      {good + "YW=i 261\n", "line 262"},
      {good + "YX== 261\n", "line 262"},
      {good + " 261\n", "line 262"},
      {good + "YWJi 262\n", "line 262"},
      {good + "YWJi -1\n", "line 262"},
      {good + "YWJi 99999999999999999999\n", "line 262"},
      {good + "YWI= 261\n", "repeats"},
      {good + base64(std::string(2000, 'a')) + " 261\n", "1 to 1024 bytes"},
  };
  for (const auto& [text, named] : cases) {
    const auto tokenizer = Tokenizer::from_tiktoken(text, kConfig);
    REQUIRE(!tokenizer.ok());
    CAPTURE(tokenizer.error().message);
    CHECK(tokenizer.error().message.find("tiktoken.model") != std::string::npos);
    CHECK(tokenizer.error().message.find(named) != std::string::npos);
  }
  for (
      const char* config :
      {"", "{}", R"({"tokenizer_class": "QWenTokenizer"})",
       R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": []})",
       R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"5": {"content": "x"}}})",
       R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"x": {"content": "x"}}})",
       R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"300": {}}})",
       R"({"tokenizer_class": "TikTokenTokenizer", "bos_token": "no"})"}) {
    const auto tokenizer = Tokenizer::from_tiktoken(good, config);
    CAPTURE(config);
    REQUIRE(!tokenizer.ok());
    CHECK(tokenizer.error().message.find("tokenizer_config.json") != std::string::npos);
  }
}

TEST_CASE("a GGUF file's vocabulary cuts as its family does") {
  CHECK(*made(gguf())->encode("abc aa", true) == VocabularyIds{261, 258, ' ', 259});
  CHECK(*made(gguf())->encode("12<s>é <x>", false) == VocabularyIds{260, 261, 262});
  CHECK(made(gguf())->is_special(261));
  CHECK(!made(gguf())->is_special(262));
  CHECK(made(gguf())->encode("[PAD263]", false)->size() > 1);
  GgufVocabulary vocabulary = gguf();
  vocabulary.add_bos = false;
  vocabulary.pre = "qwen2";  // single digits, and text in NFC
  CHECK(*made(vocabulary)->encode("12", true) == VocabularyIds{'1', '2'});
  CHECK(*made(vocabulary)->encode("e\u0301", true) == VocabularyIds{0xC3, 0xA9});
  vocabulary.pre = "kimi-k2";
  vocabulary.merges.clear();
  CHECK(*made(vocabulary)->encode("aabc", true) == VocabularyIds{'a', 258});
}

TEST_CASE("a GGUF vocabulary as converters write it") {
  GgufVocabulary vocabulary = gguf();
  SUBCASE("ids of no token name none") {
    vocabulary.bos = 9999;
    vocabulary.eos = -5;
    CHECK_FALSE(made(vocabulary)->bos());
    CHECK(made(vocabulary)->ends().empty());
    CHECK(*made(vocabulary)->encode("b", true) == VocabularyIds{'b'});
  }
  SUBCASE("places may be empty") {
    vocabulary.tokens[261].clear();
    CHECK(*made(vocabulary)->encode("b<s>", false) == VocabularyIds{'b', '<', 's', '>'});
    CHECK(made(vocabulary)->decode(VocabularyIds{'b', 261}, false) == "b");
  }
  SUBCASE("of two with one text the later is meant") {
    vocabulary.tokens[262] = vocabulary.tokens[261];
    CHECK(*made(vocabulary)->encode("b<s>", false) == VocabularyIds{'b', 262});
    CHECK(made(vocabulary)->decode(VocabularyIds{261}, false) == "<s>");
  }
  SUBCASE("all added tokens that are known to end an answer do") {
    vocabulary.tokens[261] = "<|endoftext|>";
    vocabulary.tokens[262] = "<|im_end|>";
    vocabulary.eos = 262;
    CHECK(made(vocabulary)->ends() == VocabularyIds{262, 261});
  }
}

TEST_CASE("a GGUF vocabulary that is wrong is refused, naming the key") {
  struct Case {
    void (*spoil)(GgufVocabulary&);
    const char* named;
  };
  const Case cases[] = {
      {[](GgufVocabulary& v) { v.pre = "no-such"; }, "tokenizer.ggml.pre is \"no-such\""},
      {[](GgufVocabulary& v) { v.pre = "no-such"; }, "deepseek-v3"},
      {[](GgufVocabulary& v) { v.tokens.clear(); }, "tokens"},
      {[](GgufVocabulary& v) { v.types.pop_back(); }, "token_type"},
      {[](GgufVocabulary& v) { v.types[3] = 9; }, "token_type[3]"},
      {[](GgufVocabulary& v) { v.types[3] = 6; }, "tokens[3]"},
      {[](GgufVocabulary& v) { v.tokens[3] = "\xff"; }, "tokens[3]"},
      {[](GgufVocabulary& v) { v.tokens[3] = "一"; }, "tokens[3]"},
      {[](GgufVocabulary& v) { v.merges[0] = "bc"; }, "merges[0]"},
      {[](GgufVocabulary& v) { v.merges[0] = "c b"; }, "merges[0]"},
  };
  for (const Case& c : cases) {
    GgufVocabulary vocabulary = gguf();
    c.spoil(vocabulary);
    const auto tokenizer = Tokenizer::from_gguf(vocabulary);
    CAPTURE(c.named);
    REQUIRE(!tokenizer.ok());
    CHECK(tokenizer.error().message.find("tokenizer.ggml.") != std::string::npos);
    CHECK(tokenizer.error().message.find(c.named) != std::string::npos);
  }
}

TEST_CASE("text comes in its normal form") {
  CHECK(to_normal_form("e\u0301", NormalForm::kNfc) == "\u00e9");
  CHECK(to_normal_form("\u00e9", NormalForm::kNfd) == "e\u0301");
  CHECK(to_normal_form("\ufb01\u2460", NormalForm::kNfkc) == "fi1");
  CHECK(to_normal_form("\u1112\u1161\u11ab", NormalForm::kNfc) == "\ud55c");
  CHECK(to_normal_form("a\u0301\u0323", NormalForm::kNfd) == "a\u0323\u0301");
  // U+1DF6 came with Unicode 10: nothing moves past it.
  CHECK(to_normal_form("a\u1df6\u0301\u0323", NormalForm::kNfc) == "a\u1df6\u0323\u0301");
  std::string marks = "a";
  while (marks.size() < 2'000'000) marks += "\u0301\u0323";
  CHECK(to_normal_form(marks, NormalForm::kNfc).starts_with("\u1ea1\u0323\u0323"));
}

}  // namespace troupe
