#include "model/grammar/grammar_writer.h"

#include <array>
#include <cstdio>

namespace troupe {

std::string GrammarWriter::literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02X", byte);
      out += escaped.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string GrammarWriter::token(TokenId id) { return "<[" + std::to_string(id) + "]>"; }

std::string GrammarWriter::rule(std::string_view hint, std::string_view expression) {
  std::string name = reserve(hint);
  define(name, expression);
  return name;
}

std::string GrammarWriter::reserve(std::string_view hint) {
  return std::string(hint) + "-" + std::to_string(++count_);
}

void GrammarWriter::define(std::string_view name, std::string_view expression) {
  rules_.append(name).append(" ::= ").append(expression).append("\n");
}

std::string GrammarWriter::choice(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : " | ") + literal(text);
  return rule("choice", out);
}

std::string GrammarWriter::finish(std::string_view root) && {
  return "root ::= " + std::string(root) + "\n" + rules_;
}

}  // namespace troupe
