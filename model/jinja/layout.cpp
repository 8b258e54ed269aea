#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "model/jinja/format.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

std::string upper_if(bool wanted, std::string text) {
  return wanted ? text::upper(text) : std::move(text);
}

/// The digits of |number| with its prefix.
std::string integer_digits(std::int64_t number, const Layout& layout) {
  const auto size =
      number < 0 ? ~static_cast<std::uint64_t>(number) + 1 : static_cast<std::uint64_t>(number);
  const char type = layout.type;
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::array<char, 70> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, base);
  std::string text(digits.data(), end.ptr);
  if (layout.thousands) {
    for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  }
  if (layout.alternate && base != 10)
    text = std::string("0") + static_cast<char>(type | 0x20) + text;
  return upper_if(type == 'X', text);
}

/// The digits of |number|.
std::string real_digits(double number, const Layout& layout) {
  const double size = std::abs(number);
  if (layout.type == 0 && layout.precision < 0) return real_text(size);
  const char kind = layout.type == 0 ? 'g' : layout.type;
  const bool percent = kind == '%';
  const std::array<char, 5> form = {'%', '.', '*', percent ? 'f' : kind, 0};
  std::array<char, 512> digits{};
  const int precision = layout.precision < 0 ? 6 : layout.precision;
  std::snprintf(digits.data(), digits.size(), form.data(), precision, percent ? size * 100 : size);
  std::string text = digits.data();
  if (layout.thousands) {
    const std::size_t whole = std::min(text.find('.'), text.size());
    for (std::size_t i = whole; i > 3; i -= 3) text.insert(i - 3, ",");
  }
  if (percent) text += '%';
  return text;
}

std::string padded(Context& context, std::string text, std::string sign, const Layout& layout,
                   char own_align) {
  const std::size_t length = text::length(text) + sign.size();
  if (layout.width <= length) return sign + text;
  const std::size_t room = layout.width - length;
  if (!context.spend_bytes(room * layout.fill.size())) return {};
  const auto fill = [&](std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += layout.fill;
    return out;
  };
  switch (layout.align == 0 ? own_align : layout.align) {
    case '<':
      return sign + text + fill(room);
    case '^':
      return fill(room / 2) + sign + text + fill(room - room / 2);
    case '=':
      return sign + fill(room) + text;
    default:
      return fill(room) + sign + text;
  }
}

}  // namespace

std::string laid_out(Context& context, const Value& value, const Layout& layout) {
  if (layout.width > 10'000 || layout.precision > 100) {
    context.fail("a format is too wide");
    return {};
  }
  const auto number = as_integer(value);
  const bool real_type =
      std::string_view("eEfFgG%").find(layout.type) != std::string_view::npos && layout.type != 0;
  const bool plain_flag = value.boolean() != nullptr && layout.type == 0;
  if (number && layout.type == 'c') {
    if (*number < 0 || *number > 0x10FFFF || (*number >= 0xD800 && *number < 0xE000)) {
      context.fail("there is no such character");
      return {};
    }
    std::string text;
    utf8::append(text, static_cast<char32_t>(*number));
    return padded(context, text, "", layout, '<');
  }
  if ((number && !plain_flag) || value.real() != nullptr) {
    const double real = value.real() != nullptr ? *value.real() : static_cast<double>(*number);
    const bool negative = number ? *number < 0 : std::signbit(real) && !std::isnan(real);
    const std::string sign = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
    if (value.real() != nullptr && layout.type != 0 && !real_type) {
      context.fail("a float cannot be shown with this format");
      return {};
    }
    if (real_type && !context.spend(kStepsOfDigits)) return {};
    const std::string digits =
        number && !real_type ? integer_digits(*number, layout) : real_digits(real, layout);
    return padded(context, digits, sign, layout, '>');
  }
  if (layout.type != 0 && layout.type != 's') {
    context.fail("'" + std::string(value.type_name()) + "' cannot be shown with this format");
    return {};
  }
  std::string text = shown(context, value);
  if (layout.precision >= 0)
    text.resize(text::offset(text, static_cast<std::size_t>(layout.precision)));
  return padded(context, std::move(text), "", layout, '<');
}

}  // namespace troupe::jinja
