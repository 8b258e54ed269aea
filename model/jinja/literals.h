#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace troupe::jinja {

/// The text of a literal without its quotes; nothing if an escape is no character.
std::optional<std::string> unescaped(std::string_view literal);

struct NumberLiteral {
  std::size_t length = 0;  ///< 0: not a number, or too large
  Value value;
};
/// The number at the start of `text`: 12, 1_000, 0x1F, 0b1, 0o7, 1.5, 1e3.
NumberLiteral read_number(std::string_view text, bool may_be_real);

/// The bytes of the name at the start of `text`: letters, digits and underscores.
std::size_t name_length(std::string_view text);

}  // namespace troupe::jinja
