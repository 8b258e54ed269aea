#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// "form" % value
Value percent_format(Context& context, std::string_view form, const Value& value);
/// "form".format(...)
Value brace_format(Context& context, std::string_view form, const Arguments& arguments);

/// Python's str.replace(); a negative count replaces all.
struct Replacement {
  std::string_view old, fresh;
  std::int64_t count = -1;
};
Value replaced(Context& context, std::string_view text, const Replacement& what);

/// Many digits of a float take as long.
inline constexpr std::uint64_t kStepsOfDigits = 50;

/// How a value is laid out: Python's format mini-language, as far as both forms need it.
struct Layout {
  std::string fill = " ";
  char align = 0;  ///< '<', '>', '^', '=' or 0: the type's own
  char sign = '-';
  bool alternate = false;
  std::size_t width = 0;
  int precision = -1;
  char type = 0;  ///< 0: the type's own
  bool thousands = false;
};
std::string laid_out(Context& context, const Value& value, const Layout& layout);

}  // namespace troupe::jinja
