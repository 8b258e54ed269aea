// What a GGUF file's metadata say of its vocabulary and its chat template.
#include "model/tokenizer/gguf_text.h"

#include <doctest/doctest.h>

#include <functional>

namespace troupe {
namespace {

GgufHeader gguf_metadata() {
  GgufHeader header;
  header.metadata["tokenizer.ggml.model"] = std::string("gpt2");
  header.metadata["tokenizer.ggml.pre"] = std::string("qwen2");
  header.metadata["tokenizer.ggml.tokens"] = std::vector<std::string>{"a", "b", "ab", "<s>"};
  header.metadata["tokenizer.ggml.merges"] = std::vector<std::string>{"a b"};
  header.metadata["tokenizer.ggml.token_type"] = std::vector<std::int64_t>{1, 1, 1, 3};
  header.metadata["tokenizer.ggml.bos_token_id"] = std::int64_t{3};
  header.metadata["tokenizer.ggml.eos_token_id"] = std::int64_t{2};
  header.metadata["tokenizer.ggml.add_bos_token"] = true;
  header.metadata["tokenizer.ggml.add_eos_token"] = false;
  header.metadata["tokenizer.chat_template"] = std::string("{{ bos_token }}");
  return header;
}

}  // namespace

TEST_CASE("a GGUF file's keys become a vocabulary") {
  const auto read = gguf_vocabulary(gguf_metadata());
  REQUIRE(read.ok());
  CHECK(read->pre == "qwen2");
  CHECK(read->tokens == std::vector<std::string>{"a", "b", "ab", "<s>"});
  CHECK(read->merges == std::vector<std::string>{"a b"});
  CHECK(read->types == std::vector<std::int32_t>{1, 1, 1, 3});
  CHECK(read->bos == 3);
  CHECK(read->eos == 2);
  CHECK(read->add_bos == true);
  CHECK(read->add_eos == false);
}

TEST_CASE("what is no byte-level vocabulary is told from what is none") {
  GgufHeader header = gguf_metadata();
  for (const char* none : {"", "no_vocab"}) {
    if (*none == '\0')
      header.metadata.erase("tokenizer.ggml.model");
    else
      header.metadata["tokenizer.ggml.model"] = std::string(none);
    CHECK(gguf_vocabulary(header).error().code == ErrorCode::kNotFound);
  }
  header.metadata["tokenizer.ggml.model"] = "llama" + std::string(1000, 'x');
  const Error other = gguf_vocabulary(header).error();
  CHECK(other.code == ErrorCode::kInvalidArgument);
  CHECK(other.message.find("tokenizer.ggml.model is \"llama") == 0);
  CHECK(other.message.size() < 200);
}

TEST_CASE("a key of another type or out of range counts as absent") {
  struct Case {
    const char* key;
    GgufValue value;
    std::function<bool(const GgufVocabulary&)> absent;
  };
  const auto no_bos = [](const GgufVocabulary& v) { return !v.bos; };
  const Case cases[] = {
      {"pre", std::int64_t{1}, [](const auto& v) { return v.pre.empty(); }},
      {"tokens", std::vector<std::int64_t>{1}, [](const auto& v) { return v.tokens.empty(); }},
      {"merges", std::string("a b"), [](const auto& v) { return v.merges.empty(); }},
      {"token_type", std::vector<double>{1.0}, [](const auto& v) { return v.types.empty(); }},
      {"token_type", std::vector<std::int64_t>{1, std::int64_t{1} << 32},
       [](const auto& v) {
         return v.types == std::vector<std::int32_t>{1, 0};
       }},
      {"bos_token_id", std::string("3"), no_bos},
      {"bos_token_id", std::int64_t{-1}, no_bos},
      {"bos_token_id", std::int64_t{1} << 31, no_bos},
      {"add_bos_token", std::int64_t{1}, [](const auto& v) { return !v.add_bos; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.key);
    GgufHeader header = gguf_metadata();
    header.metadata[std::string("tokenizer.ggml.") + c.key] = c.value;
    const auto read = gguf_vocabulary(header);
    REQUIRE(read.ok());
    CHECK(c.absent(*read));
  }
}

TEST_CASE("a GGUF file's chat template comes with the texts of its tokens") {
  GgufHeader header = gguf_metadata();
  header.metadata["tokenizer.ggml.unknown_token_id"] = std::int64_t{4};  // There are four.
  const auto read = gguf_chat_template(header);
  REQUIRE(read.ok());
  CHECK(read->text == "{{ bos_token }}");
  CHECK(read->tool_use.empty());
  using Tokens = std::vector<std::pair<std::string, std::string>>;
  CHECK(Tokens(read->tokens.begin(), read->tokens.end()) ==
        Tokens{{"bos_token", "<s>"}, {"eos_token", "ab"}});
  header.metadata["tokenizer.chat_template.tool_use"] = std::string("tools");
  CHECK(gguf_chat_template(header)->tool_use == "tools");
  header.metadata.erase("tokenizer.chat_template");
  CHECK(gguf_chat_template(header).error().code == ErrorCode::kNotFound);
}

}  // namespace troupe
