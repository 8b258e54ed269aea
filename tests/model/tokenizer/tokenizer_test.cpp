#include "model/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/utf8.h"
#include "tests/promises.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

const std::string kDemo = testing::source_path("tools/demo/pocket-dictionary");

std::string letter(unsigned char byte) {
  std::string text;
  utf8::append(text, byte_to_char(byte));
  return text;
}

/// Ids 0 to 255 are the bytes, 256 on a few merges, then the added tokens <s> and <x>.
Json tiny() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[letter(static_cast<unsigned char>(b))] = b;
  int next = 256;
  for (const char* token : {"ab", "bc", "abc", "aa", "aaaa"}) vocab[token] = next++;
  return {
      {"added_tokens",
       {{{"id", 261}, {"content", "<s>"}, {"special", true}},
        {{"id", 262}, {"content", "<x>"}, {"special", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", {"b c", "a b", "a bc", "a a", Json::array({"aa", "aa"})}}}}};
}

std::shared_ptr<const Tokenizer> make(const Json& json, const Json& config = nullptr) {
  auto tokenizer = Tokenizer::from_json(json.dump(), config.is_null() ? "" : config.dump());
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
  return *tokenizer;
}

Ids encode(const Json& json, std::string_view text) { return *make(json)->encode(text, false); }

std::string refusal(const Json& json, const Json& config = nullptr) {
  const auto tokenizer = Tokenizer::from_json(json.dump(), config.is_null() ? "" : config.dump());
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

}  // namespace

TEST_CASE("merges go by rank, then from the left") {
  CHECK(encode(tiny(), "abc") == Ids{258});
  CHECK(encode(tiny(), "ab") == Ids{256});
  CHECK(encode(tiny(), "aaa") == Ids{259, 'a'});
  CHECK(encode(tiny(), "aaaaa") == Ids{260, 'a'});
  CHECK(encode(tiny(), "") == Ids{});
}

TEST_CASE("invalid UTF-8 is read as U+FFFD") {
  CHECK(encode(tiny(), "\xff") == Ids{0xEF, 0xBF, 0xBD});
  CHECK(encode(tiny(), "\xe2\x82") == Ids{0xEF, 0xBF, 0xBD});
}

TEST_CASE("added tokens are found in text") {
  CHECK(encode(tiny(), "a<s>b<x><s") == Ids{'a', 261, 'b', 262, '<', 's'});

  Json json = tiny();
  json["added_tokens"][1]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  CHECK(encode(json, "a \u3000<x>\n b") == Ids{'a', 262, 'b'});

  json = tiny();
  json["added_tokens"][1]["single_word"] = true;
  CHECK(encode(json, "<x>b") == Ids{'<', 'x', '>', 'b'});
  CHECK(encode(json, "\u00e9<x>") == Ids{0xC3, 0xA9, '<', 'x', '>'});
  CHECK(encode(json, "-<x>!") == Ids{'-', 262, '!'});

  json = tiny();  // the longest of those that begin together
  json["added_tokens"].push_back({{"id", 263}, {"content", "<x><s>"}, {"special", true}});
  CHECK(encode(json, "<x><s><x>") == Ids{263, 262});
}

TEST_CASE("pre-tokenizers cut as they say") {
  const auto split = [](const char* behavior, bool invert) {
    Json json = tiny();
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"String", "b"}}},
           {"behavior", behavior},
           {"invert", invert}},
          {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
    return encode(json, "abbc");
  };
  // Every piece begins with a space, so the cuts show.
  CHECK(split("Isolated", false) == Ids{' ', 'a', ' ', 'b', ' ', 'b', ' ', 'c'});
  CHECK(split("Removed", false) == Ids{' ', 'a', ' ', 'c'});
  CHECK(split("Removed", true) == Ids{' ', 'b', ' ', 'b'});
  CHECK(split("MergedWithPrevious", false) == Ids{' ', 256, ' ', 'b', ' ', 'c'});
  CHECK(split("MergedWithNext", false) == Ids{' ', 'a', ' ', 'b', ' ', 257});
  CHECK(split("Contiguous", false) == Ids{' ', 'a', ' ', 'b', 'b', ' ', 'c'});
}

TEST_CASE("text is normalized, and so are the added tokens that ask for it") {
  Json json = tiny();
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "NFC"}},
                          {{"type", "Replace"}, {"pattern", {{"String", "é"}}}, {"content", "ab"}},
                          {{"type", "Prepend"}, {"prepend", "c"}}}}};
  CHECK(encode(json, "e\u0301c") == Ids{'c', 258});  // cabc
  CHECK(encode(json, "<s>e\u0301") == Ids{261, 'c', 256});
  json["added_tokens"].push_back({{"id", 263}, {"content", "\u2126"}, {"normalized", true}});
  CHECK(encode(json, "\u03a9") == Ids{263});  // Both are "c" and the Greek letter.
}

TEST_CASE("ignore_merges takes whole words first") {
  Json json = tiny();
  json["model"]["merges"] = Json::array({"b c"});
  CHECK(encode(json, "aaaa") == Ids{'a', 'a', 'a', 'a'});
  json["model"]["ignore_merges"] = true;
  CHECK(encode(json, "aaaa") == Ids{260});
}

TEST_CASE("BOS and EOS come as the files ask") {
  const Json llama = {{"tokenizer_class", "LlamaTokenizerFast"},
                      {"bos_token", "<s>"},
                      {"eos_token", {{"content", "<x>"}}}};
  const auto ids = [](const Json& json, const Json& config) {
    return *make(json, config)->encode("b", true);
  };
  CHECK(ids(tiny(), nullptr) == Ids{'b'});
  CHECK(ids(tiny(), {{"bos_token", "<s>"}}) == Ids{'b'});
  CHECK(ids(tiny(), llama) == Ids{261, 'b'});
  Json config = llama;
  config["add_bos_token"] = false;
  config["add_eos_token"] = true;
  CHECK(ids(tiny(), config) == Ids{'b', 262});
  CHECK(make(tiny(), config)->prefix().empty());
  CHECK(make(tiny(), llama)->prefix() == Ids{261});
  CHECK(make(tiny(), config)->bos() == 261);
  CHECK(make(tiny(), config)->ends() == Ids{262});

  Json json = tiny();
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {261}}}}}}};
  CHECK(ids(json, nullptr) == Ids{261, 'b'});
  CHECK(*make(json)->encode("b", false) == Ids{'b'});
  config["add_eos_token"] = false;
  CHECK(ids(json, config) == Ids{'b'});
}

TEST_CASE("special_tokens_map.json names the BOS and EOS that the other file does not") {
  const auto made = [](const Json& config, const Json& map) {
    const auto tokenizer =
        Tokenizer::from_json(tiny().dump(), config.is_null() ? "" : config.dump(), map.dump());
    REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
    return *tokenizer;
  };
  const Json map = {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "<x>"}};
  CHECK(made(nullptr, map)->bos() == 261);
  CHECK(made(nullptr, map)->ends() == Ids{262});
  CHECK(*made(nullptr, map)->encode("b", true) == Ids{'b'});
  const Json llama = {{"tokenizer_class", "LlamaTokenizerFast"}};
  CHECK(*made(llama, map)->encode("b", true) == Ids{261, 'b'});
  // Both count as ends if they differ; the BOS is tokenizer_config.json's.
  const Json config = {{"bos_token", "<x>"}, {"eos_token", "<s>"}};
  CHECK(made(config, map)->bos() == 262);
  CHECK(made(config, map)->ends() == Ids{261, 262});
  CHECK(made(config, {{"eos_token", "<s>"}})->ends() == Ids{261});
  // It may be left from another vocabulary.
  CHECK(made(config, {{"bos_token", "</s>"}, {"eos_token", 3}})->ends() == Ids{261});
  CHECK_FALSE(made(nullptr, {{"bos_token", "</s>"}})->bos());
}

TEST_CASE("decoding skips what it is told to, and ids of no token") {
  const auto tokenizer = make(tiny());
  const Ids ids = {-1, 'a', 261, 262, 1000, 258};
  CHECK(tokenizer->decode(ids, false) == "a<s><x>abc");
  CHECK(tokenizer->decode(ids, true) == "a<x>abc");
  CHECK(tokenizer->vocab_size() == 263);
  CHECK(tokenizer->is_special(261));
  CHECK(!tokenizer->is_special(262));
  CHECK(!tokenizer->has_token(263));
  CHECK(tokenizer->added_token_id("<x>") == 262);
  CHECK(!tokenizer->added_token_id("a"));
}

TEST_CASE("a stream never shows half a character and adds up to the whole") {
  const auto tokenizer = make(tiny());
  const std::string texts[] = {"a👍é", "\xf0\x9f", "a\xe2\x82z", "\xff\xfe", "<s>\xc3<s>\xa9", ""};
  for (const std::string& text : texts) {
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    ids.insert(ids.begin(), 261);
    for (const bool skip : {false, true}) {
      StreamDecoder decoder(tokenizer, {skip, {}});
      std::string streamed;
      for (const TokenId id : ids) {
        const std::string delta = decoder.feed(id);
        CHECK(utf8::valid(delta));
        streamed += delta;
      }
      streamed += decoder.finish();
      CHECK(streamed == tokenizer->decode(ids, skip));
    }
  }
  StreamDecoder decoder(tokenizer, {true, {261}});
  CHECK(decoder.feed(261) == "<s>");
  CHECK(decoder.feed(0xC3).empty());
  CHECK(decoder.feed(0xA9) == "é");
}

TEST_CASE("normalizing has a bound") {
  const auto replace = [](const char* from, const std::string& to) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  Json json = tiny();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  Json& stages = json["normalizer"]["normalizers"];
  stages.push_back(replace("a", std::string(16, 'a')));
  CHECK(make(json)->encode(std::string(10'000, 'a'), false).ok());
  while (stages.size() < 20) stages.push_back(replace("a", std::string(16, 'a')));
  const auto refused = make(json)->encode(std::string(10'000, 'a'), false);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("normalizer") != std::string::npos);

  json = tiny();  // All pieces of a text together.
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(1000, 'c')}};
  CHECK(make(json)->encode("b<s>b", false).ok());
  std::string text;
  while (text.size() < 10'000) text += "b<s>";
  CHECK(!make(json)->encode(text, false).ok());
}

TEST_CASE("every byte of a text has a token, or the text is refused") {
  const auto without = [](std::initializer_list<int> bytes) {
    Json json = tiny();
    json["model"]["merges"] = Json::array();
    for (const int b : bytes) json["model"]["vocab"].erase(letter(static_cast<unsigned char>(b)));
    return json;
  };
  const auto tokenizer = make(without({4, 0xF2, 0xFF}));  // SmolLM2 lacks these and more.
  CHECK(*tokenizer->encode("a\xff", false) == Ids{'a', 0xEF, 0xBF, 0xBD});
  const auto refused = tokenizer->encode("a\x04", false);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("0x04") != std::string::npos);
  // What the tokenizer itself puts before a word is no exception.
  Json spaced = without({' '});
  spaced["pre_tokenizer"]["add_prefix_space"] = true;
  Json marked = without({0x81});
  marked["normalizer"] = {{"type", "Prepend"}, {"prepend", "▁"}};
  for (const auto& [json, byte] : {std::pair(spaced, "0x20"), std::pair(marked, "0x81")}) {
    const auto encoded = make(json)->encode("ab", false);
    REQUIRE(!encoded.ok());
    CHECK(encoded.error().message.find(byte) != std::string::npos);
  }
  // What it takes out needs no token.
  Json removing = without({'b'});
  removing["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Removed"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  CHECK(*make(removing)->encode("abc", false) == Ids{'a', 'c'});
}

TEST_CASE("no text has fewer tokens than its bytes tell") {
  const auto least = [](const Json& json, std::size_t bytes) {
    return make(json)->tokens_at_least(bytes);
  };
  const auto lengthened = [](const char* form) {
    Json json = tiny();
    json["normalizer"] = {{"type", form}};
    return json;
  };
  CHECK(least(tiny(), 0) == 0);
  CHECK(least(tiny(), 4000) == 1000);  // aaaa
  CHECK(encode(tiny(), std::string(4000, 'a')).size() == 1000);
  Json json = tiny();
  json["added_tokens"].push_back({{"id", 263}, {"content", "<12345678>"}});
  CHECK(least(json, 4000) == 400);
  CHECK(least(lengthened("NFC"), 4000) == 250);
  CHECK(encode(lengthened("NFKC"), "\U0001d41a\U0001d41a\U0001d41a\U0001d41a") == Ids{260});
  json["added_tokens"][2]["rstrip"] = true;
  CHECK(least(json, 4000) == 0);
  json = tiny();
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "  "}}}, {"content", " "}};
  CHECK(least(json, 4000) == 500);
  json["normalizer"]["content"] = "";
  CHECK(least(json, 4000) == 0);
  json = tiny();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Removed"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  CHECK(least(json, 4000) == 0);
  for (char32_t c = 1; c < 0x110000; ++c) {  // No form shortens a character more than that.
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    utf8::append(text, c);
    for (const NormalForm form :
         {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      const std::size_t normal = to_normal_form(text, form).size();
      if (normal * 4 < text.size()) CHECK_MESSAGE(false, text);
    }
  }
}

TEST_CASE("files that are wrong or not supported are refused, naming the field") {
  struct Case {
    const char* pointer;
    Json value;
    const char* named;
  };
  const Case cases[] = {
      {"/model", 3, "model"},
      {"/model/type", "WordPiece", "model.type"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/vocab", Json::array(), "model.vocab"},
      {"/model/vocab/abc", -1, "model.vocab"},
      {"/model/vocab/abc", "1", "model.vocab"},
      {"/model/vocab/abc", 256, "model.vocab"},
      {"/model/vocab/abc", 16000000, "model.vocab"},
      {"/model/vocab/abc", 99999999999, "model.vocab"},
      {"/model/merges", "a b", "model.merges"},
      {"/model/merges/0", "ab", "model.merges[0]"},
      {"/model/merges/0", "a b c", "model.merges[0]"},
      {"/model/merges/0", "c b", "model.merges[0] needs the token \"cb\""},
      {"/model/merges/4", Json::array({"a", 1}), "model.merges[4]"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer is \"Lowercase\""},
      {"/normalizer", {{"type", "Sequence"}}, "normalizer.normalizers"},
      {"/normalizer", {{"type", "Prepend"}}, "prepend"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}},
       "normalizer.pattern"},
      {"/normalizer",
       {{"type", "Prepend"}, {"prepend", std::string(1025, 'a')}},
       "normalizer.prepend has 1025 bytes"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", std::string(1025, 'a')}}}, {"content", "a"}},
       "normalizer.pattern has 1025 bytes"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1025, 'a')}},
       "normalizer.content has 1025 bytes"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", Json::array_t(65, {{"type", "NFC"}})}},
       "normalizer.normalizers[64]"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array_t(65, {{"type", "Digits"}})}},
       "pre_tokenizer.pretokenizers[64]"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer is \"Metaspace\""},
      {"/pre_tokenizer/use_regex", 1, "use_regex"},
      {"/decoder", nullptr, "decoder"},
      {"/decoder", {{"type", "Fuse"}}, "decoder is \"Fuse\""},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor is \"BertProcessing\""},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       "post_processor.single"},
      {"/post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"<s>", {{"ids", Json::array_t(65, 261)}}}}}},
       "post_processor.single[0]"},
      {"/added_tokens", 1, "added_tokens"},
      {"/added_tokens/0", 1, "added_tokens[0]"},
      {"/added_tokens/0/id", -1, "added_tokens[0]"},
      {"/added_tokens/0/id", 5, "added_tokens"},
      {"/added_tokens/0/content", "", "added_tokens[0]: content"},
      {"/added_tokens/0/content", std::string(5000, 'a'), "added_tokens[0]: content"},
      {"/added_tokens/1/content", "<s>", "added_tokens[1]"},
  };
  for (const Case& c : cases) {
    Json json = tiny();
    json[Json::json_pointer(c.pointer)] = c.value;
    const std::string message = refusal(json);
    CAPTURE(c.pointer);
    CAPTURE(message);
    CHECK(message.find("tokenizer.json") != std::string::npos);
    CHECK(message.find(c.named) != std::string::npos);
  }
  Json json = tiny();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?<n>a)"}}}, {"behavior", "Isolated"}};
  CHECK(refusal(json).find("pre_tokenizer.pattern") != std::string::npos);
  CHECK(refusal(tiny(), {{"bos_token", 7}}).find("bos_token") != std::string::npos);
  CHECK(refusal(tiny(), {{"tokenizer_class", "LlamaTokenizerFast"}, {"add_bos_token", true}})
            .find("bos_token") != std::string::npos);
}

TEST_CASE("texts that are no JSON are refused") {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\xff"),
        std::string(100'000, '['), std::string(20'000'000, ',')}) {
    const auto tokenizer = Tokenizer::from_json(text, "");
    REQUIRE(!tokenizer.ok());
    CHECK(tokenizer.error().message.find("tokenizer.json") != std::string::npos);
  }
}

TEST_CASE("a folder without a tokenizer says so") {
  const auto tokenizer = Tokenizer::load("/nonexistent");
  REQUIRE(!tokenizer.ok());
  CHECK(tokenizer.error().code == ErrorCode::kNotFound);
}

TEST_CASE("the demo's golden prompt has its ids") {
  const auto tokenizer = Tokenizer::load(kDemo);
  REQUIRE(tokenizer.ok());
  std::ifstream file(kDemo + "/golden.json");
  const Json golden = Json::parse(file).at("prompts").at(0);
  const std::string text =
      "<｜User｜>" + golden.at("question").get<std::string>() + "<｜Assistant｜><think>\n";
  CHECK(*(*tokenizer)->encode(text, true) == golden.at("prompt").get<Ids>());
  CHECK((*tokenizer)->decode(golden.at("greedy").get<Ids>(), false) ==
        golden.at("text").get<std::string>());
}

TEST_CASE("a megabyte of one character takes no quadratic time") {
  const auto tokenizer = Tokenizer::load(kDemo);
  REQUIRE(tokenizer.ok());
  for (const char* unit : {" ", "a", "1", "!", "\n", "é", "是", "<", "1 "}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto start = std::chrono::steady_clock::now();
    const auto ids = (*tokenizer)->encode(text, false);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    REQUIRE(ids.ok());
    CHECK((*tokenizer)->decode(*ids, false) == text);
    promised("a megabyte", took, std::chrono::seconds(30));  // quadratic would be hours
  }
}

}  // namespace troupe
