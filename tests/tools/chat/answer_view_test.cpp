#include "tools/troupe/chat/answer_view.h"

#include <doctest/doctest.h>

#include <vector>

namespace troupe::chat {
namespace {

std::string shown(Thoughts thoughts, const std::vector<AnswerDelta>& deltas) {
  AnswerView view(thoughts);
  std::string out;
  for (const auto& delta : deltas) out += view.add(delta);
  return out + view.finish();
}

const std::vector<AnswerDelta> kAnswer = {{"\nA noun.", "", {}},
                                          {"\nA stream.\n", "", {}},
                                          {"", "\n\n", {}},
                                          {"", "A river\n", {}},
                                          {"", "flows.\n\n", {}}};

TEST_CASE("one blank line stands between a thought and the answer, and none around") {
  CHECK(shown(Thoughts::kDim, kAnswer) ==
        "\x1b[2mA noun.\x1b[0m\x1b[2m\nA stream.\x1b[0m\n\nA river\nflows.");
  CHECK(shown(Thoughts::kMarked, kAnswer) == "| A noun.\n| A stream.\n\nA river\nflows.");
  CHECK(shown(Thoughts::kHidden, kAnswer) == "A river\nflows.");
}

TEST_CASE("an answer without a thought, a thought without an answer, nothing at all") {
  CHECK(shown(Thoughts::kDim, {{"", "Hi.", {}}}) == "Hi.");
  CHECK(shown(Thoughts::kDim, {{" \n", "Hi.", {}}}) == "Hi.");
  CHECK(shown(Thoughts::kMarked, {{"Hm", "", {}}, {"", "\n \n", {}}}) == "| Hm");
  CHECK(shown(Thoughts::kHidden, {{"Hm", "", {}}}).empty());
  CHECK(shown(Thoughts::kDim, {}).empty());
}

TEST_CASE("blank lines within stay") {
  CHECK(shown(Thoughts::kHidden, {{"", "a\n", {}}, {"", "\n  b", {}}}) == "a\n\n  b");
}

TEST_CASE("a thought can neither end the faint letters nor leave them on") {
  const std::string out = shown(Thoughts::kDim, {{"x\x1b[0m", "", {}}, {"", "y", {}}});
  CHECK(out == "\x1b[2mx\xEF\xBF\xBD[0m\x1b[0m\n\ny");
}

TEST_CASE("what ends within a character says so") {
  CHECK(shown(Thoughts::kHidden, {{"", "a\xE2\x82", {}}}) == "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace troupe::chat
