#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"
#include "runtime/result.h"

namespace troupe::jinja {

struct Token {
  enum class Kind : unsigned char {
    kData,  ///< text between tags
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kText,    ///< a literal, escapes resolved
    kNumber,  ///< `value` holds it
    kSign,    ///< an operator or a bracket
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  Value value;
  int line = 1;

  bool is(std::string_view sign) const { return kind == Kind::kSign && text == sign; }
  bool named(std::string_view name) const { return kind == Kind::kName && text == name; }
};

/// Splits a template as Jinja with trim_blocks and lstrip_blocks does; the last token is kEnd.
/// The source is valid UTF-8.
Result<std::vector<Token>> tokenize(std::string_view source);

/// An error of the template's text: what is wrong, and where.
Error syntax_error(int line, const std::string& what);

}  // namespace troupe::jinja
