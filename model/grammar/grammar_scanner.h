#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe::grammar {

/// Reads a grammar's text character by character and knows where it is. The first error stays:
/// after it nothing more is read.
class GrammarScanner {
 public:
  explicit GrammarScanner(std::string_view text) : text_(text) {}

  std::size_t position() const { return position_; }
  bool at_end() const { return position_ >= text_.size(); }
  /// The byte ahead; 0 at the end and after an error.
  char peek() const { return at_end() || failed() ? '\0' : text_[position_]; }
  bool starts_with(std::string_view word) const {
    return !failed() && text_.substr(position_).starts_with(word);
  }
  bool take(std::string_view word);
  /// White space, ends of lines and comments.
  void skip_space();
  /// Letters, digits, `-` and `_`; empty if there are none.
  std::string_view name();
  /// Whether `name ::=` is ahead.
  bool definition_ahead() const;
  /// Decimal digits; nothing if there are none or their number is above `max`.
  std::optional<unsigned> number(unsigned max);
  /// One character of a literal or a class, an escape resolved.
  char32_t character();

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  void fail(std::size_t position, const std::string& what);

 private:
  char32_t escape();
  char32_t hex(int digits);
  char32_t plain();

  std::string_view text_;
  std::size_t position_ = 0;
  std::optional<Error> error_;
};

}  // namespace troupe::grammar
