#include "model/grammar/grammar_writer.h"

#include <doctest/doctest.h>

#include "model/grammar/compiled_grammar.h"

namespace troupe {
namespace {

TEST_CASE("texts and rules are written as the notation has them") {
  CHECK(GrammarWriter::literal("a\"\\\n\x7f") == R"("a\"\\\x0A\x7F")");
  CHECK(GrammarWriter::token(12) == "<[12]>");
  GrammarWriter writer;
  CHECK(writer.rule("name", "\"a\"") == "name-1");
  CHECK(writer.rule("name", "name-1+") == "name-2");
  CHECK(std::move(writer).finish("name-2") ==
        "root ::= name-2\nname-1 ::= \"a\"\nname-2 ::= name-1+\n");
}

TEST_CASE("a grammar becomes a part of another under names of its own") {
  const auto included = [](std::string_view text) {
    GrammarWriter writer;
    const std::string name = writer.rule("of", "\"of\"");
    const std::string root = writer.include(text);
    CHECK(root == "of-2-root");
    CHECK(name == "of-1");
    return writer.rules().substr(writer.rules().find('\n') + 1);
  };
  CHECK(
      included(
          "root ::= of-1 \"root \\\" of-1\" [a-z\\]x]{2,3} (of-1|<[12]>)*  # root\nof-1\n::= .") ==
      "of-2-root ::= of-2-of-1 \"root \\\" of-1\" [a-z\\]x]{2,3} (of-2-of-1|<[12]>)*  # root\n"
      "of-2-of-1\n::= .\n");
  // What is wrong stays wrong.
  for (const char* wrong : {"root ::= \"a", "root ::= [a", "root ::= <[1", "root ::= \"a\"{2", "",
                            "root ::= \"\\q\" root", "root ::= \"\xff\" root", "other ::= \"a\""}) {
    CAPTURE(wrong);
    GrammarWriter writer;
    const std::string root = writer.include(wrong);
    CHECK_FALSE(CompiledGrammar::compile(std::move(writer).finish(root)).ok());
  }
}

}  // namespace
}  // namespace troupe
