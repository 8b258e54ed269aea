// What JSON is made of, wherever a schema does not say more.

#include "model/grammar/grammar_writer.h"
#include "model/grammar/number_text.h"

namespace troupe {

std::string GrammarWriter::json_space() {
  // Compact, Python's default and indented texts, but nothing that could go on for ever.
  if (json_space_.empty()) json_space_ = rule("space", R"((" " | "\n" [ \t]{0,40})?)");
  return json_space_;
}

std::string GrammarWriter::json_character() {
  // No escape makes half a surrogate pair.
  if (json_character_.empty())
    json_character_ = rule(
        "char",
        R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] ([0-7] [0-9a-fA-F]{2} | [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}))))");
  return json_character_;
}

std::string GrammarWriter::json_string() {
  if (json_string_.empty())
    json_string_ = rule("string", "\"\\\"\" " + json_character() + "* \"\\\"\"");
  return json_string_;
}

std::string GrammarWriter::json_number() {
  if (json_number_.empty())
    json_number_ = rule("number", number_text({})->expression(Spelling::kPlain));
  return json_number_;
}

std::string GrammarWriter::json_value() {
  if (!json_value_.empty()) return json_value_;
  json_value_ = reserve("value");
  const std::string space = json_space();
  const std::string list =
      json_value_ + " (" + space + " \",\" " + space + " " + json_value_ + ")* ";
  const std::string array =
      rule("array", "\"[\" " + space + " (\"]\" | " + list + space + " \"]\")");
  define(json_value_, "\"null\" | \"true\" | \"false\" | " + json_number() + " | " + json_string() +
                          " | " + array + " | " + json_object());
  return json_value_;
}

std::string GrammarWriter::json_object() {
  if (!json_object_.empty()) return json_object_;
  json_object_ = reserve("object");
  const std::string space = json_space();
  const std::string member =
      rule("member", json_string() + " " + space + " \":\" " + space + " " + json_value());
  define(json_object_, "\"{\" " + space + " (\"}\" | " + member + " (" + space + " \",\" " + space +
                           " " + member + ")* " + space + " \"}\")");
  return json_object_;
}

}  // namespace troupe
