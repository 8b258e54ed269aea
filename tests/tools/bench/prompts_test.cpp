#include "tools/troupe/bench/prompts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tools/troupe/bench/sharegpt.h"

namespace troupe::bench {
namespace {

Vocabulary ids_100_to_199() {
  Vocabulary vocabulary;
  for (std::int32_t id = 100; id < 200; ++id) vocabulary.ids.push_back(id);
  return vocabulary;
}

std::unique_ptr<PromptSource> prompts_of(const PromptOptions& options, Vocabulary vocabulary) {
  auto made = make_prompts(options, std::move(vocabulary));
  REQUIRE(made.ok());
  return std::move(*made);
}

TEST_CASE("random prompts have their lengths, their prefix and their ids") {
  PromptOptions options;
  options.input_len = 40;
  options.output_len = 20;
  options.prefix_len = 5;
  options.range_ratio = 0.5;
  const auto prompts = prompts_of(options, ids_100_to_199());
  const auto first = prompts->prompt(0).ids;
  std::set<std::size_t> lengths;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Prompt prompt = prompts->prompt(i);
    CHECK(prompt.ids == prompts->prompt(i).ids);
    CHECK(std::equal(first.begin(), first.begin() + 5, prompt.ids.begin()));
    CHECK((prompt.ids.size() >= 25 && prompt.ids.size() <= 65));
    CHECK((prompt.output_tokens >= 10 && prompt.output_tokens <= 30));
    CHECK(std::all_of(prompt.ids.begin(), prompt.ids.end(),
                      [](std::int32_t id) { return id >= 100 && id < 200; }));
    lengths.insert(prompt.ids.size());
  }
  CHECK(lengths.size() > 20);
  options.seed = 1;
  CHECK(prompts_of(options, ids_100_to_199())->prompt(0).ids != first);
}

TEST_CASE("prefixes are repeated, what follows is not") {
  PromptOptions options;
  options.kind = PromptOptions::Kind::kPrefixRepetition;
  options.prefixes = 3;
  options.repeated_len = 16;
  options.suffix_len = 8;
  const auto prompts = prompts_of(options, ids_100_to_199());
  std::set<std::vector<std::int32_t>> prefixes, wholes;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto ids = prompts->prompt(i).ids;
    REQUIRE(ids.size() == 24);
    prefixes.insert({ids.begin(), ids.begin() + 16});
    wholes.insert(ids);
  }
  CHECK(prefixes.size() == 3);
  CHECK(wholes.size() == 60);
}

TEST_CASE("a data set is named, and a file with it") {
  using Kind = PromptOptions::Kind;
  const std::vector<Kind> all = {Kind::kRandom, Kind::kPrefixRepetition, Kind::kShareGpt,
                                 Kind::kSessions};
  for (const auto& [said, kind, path] : {std::tuple{"random", Kind::kRandom, ""},
                                         {"prefix", Kind::kPrefixRepetition, ""},
                                         {"sessions", Kind::kSessions, ""},
                                         {"sharegpt:a.json", Kind::kShareGpt, "a.json"},
                                         {"sharegpt:/a:b", Kind::kShareGpt, "/a:b"}}) {
    PromptOptions options;
    CHECK(set_dataset(said, all, options).ok());
    CHECK(options.kind == kind);
    CHECK(options.path == path);
    CHECK(std::string(said).starts_with(dataset_name(kind)));
  }
  for (const auto& [said, told] :
       {std::pair{"", "--dataset must be random, prefix, sharegpt:FILE or sessions, not ''."},
        {"prefix_repetition", "not 'prefix_repetition'"},
        {"sharegpt", "--dataset sharegpt:FILE"},
        {"sharegpt:", "--dataset sharegpt:FILE"},
        {"sharegpt:~/a", "sharegpt:$HOME/a"},
        {"random:a", "leave ':a' out"}}) {
    PromptOptions options;
    const Status set = set_dataset(said, all, options);
    REQUIRE(!set.ok());
    CHECK_MESSAGE(set.error().message.find(told) != std::string::npos, set.error().message);
  }
  PromptOptions options;
  CHECK(set_dataset("prefix", {Kind::kRandom, Kind::kShareGpt}, options).error().message ==
        "--dataset must be random or sharegpt:FILE, not 'prefix'.");
}

TEST_CASE("words are as many as the tokens need") {
  PromptOptions options;
  options.input_len = 30;
  Vocabulary vocabulary;
  vocabulary.tokens_per_word = 1.5;
  const std::string text = prompts_of(options, vocabulary)->prompt(0).text;
  CHECK(std::count(text.begin(), text.end(), ' ') == 19);
}

TEST_CASE("later turns of a session add less") {
  PromptOptions options;
  options.kind = PromptOptions::Kind::kSessions;
  options.turns = 3;
  options.input_len = 80;
  const auto prompts = prompts_of(options, {});
  const auto words = [&](std::uint64_t number) {
    const std::string text = prompts->prompt(number).text;
    return std::count(text.begin(), text.end(), ' ') + 1;
  };
  CHECK(words(0) == 80);
  CHECK(words(1) == 20);
  CHECK(words(3) == 80);
}

TEST_CASE("of a ShareGPT file what is of use is taken") {
  const std::string answer(40, 'a'), question(20, 'q');
  const auto item = [](const std::string& asked, const std::string& answered) {
    return R"({"conversations":[{"value":")" + asked + R"("},{"value":")" + answered + R"("}]})";
  };
  const auto found = parse_sharegpt(
      "[" + item(question, answer) + "," + item("q", answer) + "," + item(question, "a") + "," +
      item(question, std::string(9000, 'a')) + "," + item(std::string(5000, 'q'), answer) +
      R"(,3,{},{"conversations":3},{"conversations":[{"value":1}]}])");
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK(found->front().question == question);
  CHECK(found->front().answer_tokens == 10);
  for (const char* wrong : {"", "{}", "[]", "[", "[3]"}) CHECK(!parse_sharegpt(wrong).ok());
}

}  // namespace
}  // namespace troupe::bench
