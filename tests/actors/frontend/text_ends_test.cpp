#include "actors/frontend/text_ends.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "actors/frontend/model_frontend.h"
#include "tests/source_path.h"

using namespace troupe;

namespace {

using Ids = std::vector<TokenId>;

const std::shared_ptr<const Tokenizer>& demo_tokenizer() {
  static const auto tokenizer =
      Tokenizer::load(testing::source_path("tools/demo/pocket-dictionary")).value();
  return tokenizer;
}

Result<ChatFormat> chat_of(const std::string& text) {
  ChatTemplateFile file;
  file.text = text;
  file.tokens = {{"bos_token", "<｜begin▁of▁sentence｜>"}, {"eos_token", "<｜end▁of▁sentence｜>"}};
  return ChatFormat::make(file);
}

/// `text` is a chat template; empty: there is none.
TextEnds ends_of(const Ids& generation, const Ids& config, const std::string& text,
                 const Tokenizer* tokenizer = demo_tokenizer().get()) {
  GenerationConfig advice;
  advice.eos_token_ids = generation;
  ModelSpec spec;
  spec.vocab = 4096;
  spec.eos_token_ids = config;
  return find_text_ends({advice, spec, tokenizer,
                         text.empty() ? Result<ChatFormat>(not_found("none")) : chat_of(text)});
}

Ids end_ids(const TextEnds& ends) {
  Ids found;
  for (const EndToken& end : ends.end) found.push_back(end.id);
  return found;
}

TokenId id_of(const char* token) { return demo_tokenizer()->added_token_id(token).value(); }

}  // namespace

TEST_CASE("all files that name an end token count") {
  CHECK(end_ids(ends_of({2}, {}, "")) == Ids{2, 1});
  CHECK(end_ids(ends_of({2}, {3}, "")) == Ids{2, 3, 1});
  const TextEnds both = ends_of({1, 2, 1}, {1}, "");
  CHECK(end_ids(both) == Ids{1, 2});
  CHECK(both.end[0].told_by ==
        std::vector<std::string_view>{"generation_config", "config", "tokenizer"});
  CHECK(both.begin == Ids{0});
  CHECK_FALSE(both.chat_begin);
  SUBCASE("but what the vocabulary does not have") {
    CHECK(end_ids(ends_of({-1, 4096, 1}, {99999}, "")) == Ids{1});
  }
  SUBCASE("and what is ordinary text, by config.json alone") {
    CHECK(end_ids(ends_of({300}, {87, 2}, "")) == Ids{300, 2, 1});
  }
  SUBCASE("ids alone are taken as they are") {
    CHECK(end_ids(ends_of({300}, {87}, "", nullptr)) == Ids{300, 87});
  }
}

TEST_CASE("the token that ends a turn in the chat template ends an answer") {
  const std::string head = "{{ bos_token }}{% for m in messages %}";
  const TokenId user = id_of("<｜User｜>"), pad = id_of("<｜▁pad▁｜>");
  // As ChatML has it, with a token of its own.
  TextEnds ends = ends_of({}, {},
                          "{% for m in messages %}<｜User｜>{{ m.role }}\n"
                          "{{ m.content }}<｜▁pad▁｜>\n{% endfor %}");
  CHECK(end_ids(ends) == Ids{1, pad});
  CHECK(ends.end[1].told_by == std::vector<std::string_view>{"chat_template"});
  CHECK(ends.chat_begin == user);
  // The next turn's beginning, where nothing else ends one (GLM 4).
  ends = ends_of({}, {}, head + "<｜User｜>\n{{ m.content }}\n{% endfor %}");
  CHECK(end_ids(ends) == Ids{1, user});
  CHECK(ends.chat_begin == 0);
  // Words end no answer, nor does what stands behind an answer that is not shown.
  CHECK(end_ids(ends_of({}, {}, head + "{{ m.role }}: {{ m.content }}\n{% endfor %}")) == Ids{1});
  CHECK(end_ids(ends_of({}, {}, "{{ bos_token }}{{ messages[0].content }}<｜▁pad▁｜>")) == Ids{1});
  CHECK(end_ids(ends_of({}, {}, "{{ raise_exception('no') }}")) == Ids{1});
}

TEST_CASE("a model whose answers are several messages does not end at the first of them") {
  const std::string harmony =
      "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}"
      "<｜▁pad▁｜>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  CHECK(end_ids(ends_of({}, {}, harmony)) == Ids{1});
}

TEST_CASE("what begins and ends is told in a sentence") {
  CHECK(describe(ends_of({2}, {}, ""), demo_tokenizer().get()) ==
        "texts begin with 0 <｜begin▁of▁sentence｜>; answers end at 2 <｜▁pad▁｜>, "
        "1 <｜end▁of▁sentence｜>");
  CHECK(describe(ends_of({5}, {}, "", nullptr), nullptr) ==
        "texts begin with no token; answers end at 5");
}
