// Tokens that only the files beside tokenizer.json tell of. What is right here was seen with
// AutoTokenizer of transformers 5.24.
#include "model/tokenizer/told_tokens.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

/// An object as transformers writes it.
Json token(const char* content, bool special = true) {
  return {{"content", content},   {"lstrip", false},     {"rstrip", false},
          {"single_word", false}, {"normalized", false}, {"special", special}};
}

struct Files {
  Json tokenizer = Json::parse(*read_text_file(
      testing::source_path("tools/demo/pocket-dictionary/tokenizer.json"), 64u << 20));
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  Json map = Json::object(), added = Json::object();

  std::shared_ptr<const Tokenizer> load() const {
    auto made = Tokenizer::from_json(tokenizer.dump(), config.dump(), map.dump(), added.dump());
    REQUIRE_MESSAGE(made.ok(), made.error().message);
    return *made;
  }
};

}  // namespace

TEST_CASE("tokens that are told beside tokenizer.json are tokens") {
  Files files;
  const Ids plain = *files.load()->encode("a<tool>b", false);
  CHECK(plain.size() > 3);
  const auto both = [&] {
    const auto tokenizer = files.load();
    CHECK(*tokenizer->encode("a<tool>b", false) == Ids{80, 4097, 81});
    CHECK(*tokenizer->encode("hi <|x|> there", false) == Ids{87, 88, 236, 4096, 2141});
    CHECK(tokenizer->is_special(4096));
    return tokenizer;
  };
  SUBCASE("added_tokens_decoder, in the order of its ids, which do not count") {
    files.config["added_tokens_decoder"] = {{"5001", token("<tool>", false)},
                                            {"600", token("<|x|>")}};
    CHECK_FALSE(both()->is_special(4097));
  }
  SUBCASE("extra tokens") {
    files.config["additional_special_tokens"] = {"<|x|>", "<tool>"};
    CHECK(both()->is_special(4097));
  }
  SUBCASE("extra tokens by name") {
    files.config["extra_special_tokens"] = {{"a_token", "<|x|>"}, {"b_token", "<tool>"}};
    both();
  }
  SUBCASE("special_tokens_map.json") {
    files.map["additional_special_tokens"] = {token("<|x|>"), "<tool>"};
    both();
  }
  SUBCASE("named ones") {
    files.config["pad_token"] = "<tool>";
    files.config["eos_token"] = token("<|x|>");
    CHECK(both()->ends() == Ids{4096});
  }
  SUBCASE("added_tokens.json, whose order is that of its ids") {
    files.map["eos_token"] = "<|x|>";
    files.added = {{"<tool>", 4097}, {"<|x|>", 4096}};
    CHECK_FALSE(both()->is_special(4097));
  }
  SUBCASE("older files do not count beside added_tokens_decoder") {
    files.config["added_tokens_decoder"] = Json::object();
    files.map["additional_special_tokens"] = {"<tool>"};
    files.added = {{"<tool>", 4097}};
    CHECK(*files.load()->encode("a<tool>b", false) == plain);
  }
}

TEST_CASE("what added_tokens_decoder says of a token counts more than tokenizer.json") {
  Files files;
  Json known = token("<|x|>");
  known["id"] = 4096;
  files.tokenizer["added_tokens"].push_back(known);
  CHECK(*files.load()->encode("hi <|x|> there", false) == Ids{87, 88, 236, 4096, 2141});
  known.erase("id");
  known["lstrip"] = known["rstrip"] = true;
  files.config["added_tokens_decoder"] = {{"4096", known}};
  CHECK(*files.load()->encode("hi <|x|> there", false) == Ids{87, 88, 4096, 3269});
}

TEST_CASE("a token of the vocabulary that is named keeps its id") {
  Files files;
  const Ids river = *files.load()->encode(" river", false);
  REQUIRE(river.size() == 1);
  std::string content;
  for (const auto& [text, id] : files.tokenizer["model"]["vocab"].items())
    if (id == river[0]) content = text;
  SUBCASE("by tokenizer_config.json") { files.config["pad_token"] = content; }
  SUBCASE("by special_tokens_map.json") { files.map["pad_token"] = content; }
  const auto tokenizer = files.load();
  CHECK(tokenizer->is_special(river[0]));
  CHECK(*tokenizer->encode("a" + content + "b", false) == Ids{80, river[0], 81});
}

TEST_CASE("added tokens that are wrong are refused by name") {
  for (const auto& [decoder, named] :
       {std::pair{Json::array(), "added_tokens_decoder should be an object"},
        {Json{{"x", token("<x>")}}, "added_tokens_decoder[\"x\"] should be an id"},
        {Json{{"7", "<x>"}}, "added_tokens_decoder[\"7\"]"},
        {Json{{"7", token(std::string(2000, 'x').c_str())}}, "1 to 1024 bytes"}}) {
    Files files;
    files.config["added_tokens_decoder"] = decoder;
    const auto tokenizer =
        Tokenizer::from_json(files.tokenizer.dump(), files.config.dump(), "", "");
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.error().message.find("tokenizer_config.json") != std::string::npos);
    CHECK(tokenizer.error().message.find(named) != std::string::npos);
  }
}

}  // namespace troupe
