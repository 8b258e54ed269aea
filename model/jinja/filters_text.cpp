#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/filters.h"
#include "model/jinja/format.h"
#include "model/jinja/json.h"
#include "model/jinja/methods.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

Value tojson(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonForm form;
  form.ascii = bound.boolean(0, false);
  form.sorted = bound.boolean(3, false);
  const Value indent = bound.get(1);
  if (!indent.is_none()) {
    form.several_lines = true;
    form.comma = ",";
    if (const auto* text = indent.text())
      form.indent = *text;
    else
      form.indent.assign(
          static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(1, 0), 0, 100)), ' ');
  }
  if (const Value separators = bound.get(2); !separators.is_none()) {
    const List* pair = separators.list();
    if (pair == nullptr || pair->items.size() != 2)
      return context.fail("tojson(): separators are two texts");
    form.comma = shown(context, pair->items[0]);
    form.colon = shown(context, pair->items[1]);
  }
  return bound.ok() ? Value(json_text(context, value, form)) : Value();
}

Value trim(Context& context, const Value& value, Arguments& arguments) {
  const Value text(shown(context, value));
  return call_method(context, text, "strip", arguments);
}

template <std::string (*change)(std::string_view)>
Value case_changed(Context& context, const Value& value, Arguments&) {
  const std::string text = shown(context, value);
  return context.spend_characters(text) ? context.text(change(text)) : Value();
}

/// Jinja's own: words begin after white space, hyphens and opening brackets.
Value title(Context& context, const Value& value, Arguments&) {
  const std::string text = shown(context, value);
  if (!context.spend(text.size()) || !context.spend_list_of(text)) return {};
  std::string out;
  bool begins = true;
  for (const std::string_view c : text::characters(text)) {
    const bool between = c == "-" || c == "(" || c == "[" || c == "{" || c == "<" ||
                         text::strip(c, std::nullopt, text::Ends::kLeft).empty();
    out += begins ? text::upper(c) : text::lower(c);
    begins = between;
  }
  return context.text(std::move(out));
}

Value replace_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "replace", arguments, {"old", "new", "count"}, 2);
  if (!bound.ok()) return {};
  const std::string text = shown(context, value);
  const std::string old = bound.text(0, ""), fresh = bound.text(1, "");
  return replaced(context, text, {old, fresh, bound.integer(2, -1)});
}

Value indent(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "indent", arguments, {"width", "first", "blank"});
  const Value width = bound.get(0);
  std::string space;
  if (const auto* text = width.text())
    space = *text;
  else
    space.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(bound.integer(0, 4), 0, 1000)),
                 ' ');
  const bool first = bound.boolean(1, false), blank = bound.boolean(2, false);
  const Value text(shown(context, value) + "\n");
  Arguments none;
  const Value lines = call_method(context, text, "splitlines", none);
  if (!bound.ok()) return {};
  std::string out;
  for (std::size_t i = 0; i < lines.list()->items.size(); ++i) {
    const std::string& line = *lines.list()->items[i].text();
    if (!context.spend_bytes(line.size() + space.size() + 1)) return {};
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !line.empty()) out += space;
    out += line;
  }
  return Value(std::move(out));
}

Value string_filter(Context& context, const Value& value, Arguments&) {
  return Value(shown(context, value));
}
Value same(Context&, const Value& value, Arguments&) { return value; }

Value escape(Context& context, const Value& value, Arguments&) {
  std::string out;
  for (const char c : shown(context, value)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return context.text(std::move(out));
}

Value format_filter(Context& context, const Value& value, Arguments& arguments) {
  const std::string form = shown(context, value);
  if (arguments.named.empty())
    return percent_format(context, form, Value::tuple(arguments.positional));
  Dict named;
  for (const auto& [name, item] : arguments.named) named.set(name, item);
  return percent_format(context, form, Value(std::move(named)));
}

Value wordcount(Context& context, const Value& value, Arguments&) {
  const std::string text = shown(context, value);
  if (!context.spend_list_of(text)) return {};
  std::int64_t count = 0;
  bool in_word = false;
  for (const std::string_view c : text::characters(text)) {
    std::size_t i = 0;
    const bool letter = c == "_" || text::is_letter(utf8::decode(c, i)) ||
                        text::is_digit(static_cast<unsigned char>(c[0]));
    count += letter && !in_word;
    in_word = letter;
  }
  return count;
}

Value center(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "center", arguments, {"width"});
  const std::string text = shown(context, value);
  const auto length = static_cast<std::int64_t>(text::length(text));
  const std::int64_t room = std::min<std::int64_t>(bound.integer(0, 80), 10'000) - length;
  if (room <= 0) return Value(text);
  // As CPython's str.center: the odd blank goes left if the width is odd.
  const std::int64_t left = room / 2 + (room & (room + length) & 1);
  return context.text(std::string(static_cast<std::size_t>(left), ' ') + text +
                      std::string(static_cast<std::size_t>(room - left), ' '));
}

Value truncate(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::string text = shown(context, value);
  const std::string end = bound.text(2, "...");
  const std::int64_t most = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const auto end_length = static_cast<std::int64_t>(text::length(end));
  if (most < end_length || leeway < 0) return context.fail("truncate(): length is too small");
  if (static_cast<std::int64_t>(text::length(text)) <= most + leeway) return Value(text);
  std::string kept =
      text.substr(0, text::offset(text, static_cast<std::size_t>(most - end_length)));
  if (!bound.boolean(1, false)) kept.resize(std::min(kept.rfind(' '), kept.size()));
  return context.text(kept + end);
}

std::optional<double> parsed_real(std::string_view text) {
  text = text::strip(text, std::nullopt, text::Ends::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ptr != text.data() + text.size() || end.ec != std::errc())
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> parsed_integer(std::string_view text, int base) {
  text = text::strip(text, std::nullopt, text::Ends::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  std::int64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || end.ptr != text.data() + text.size() || end.ec != std::errc())
    return std::nullopt;
  return value;
}

Value int_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "int", arguments, {"default", "base"});
  const std::int64_t base = bound.integer(1, 10);
  if (value.is_undefined()) return context.fail(value.trouble());
  if (base < 2 || base > 36) return context.fail("int(): base must be from 2 to 36");
  if (const auto number = as_integer(value)) return *number;
  std::optional<double> real;
  if (const auto* text = value.text()) {
    if (!context.spend_characters(*text)) return {};
    if (const auto number = parsed_integer(*text, static_cast<int>(base))) return *number;
    real = parsed_real(*text);
  } else if (value.real() != nullptr) {
    real = *value.real();
  }
  const auto whole = real ? whole_number(std::trunc(*real)) : std::nullopt;
  if (whole) return *whole;
  return bound.find(0) == nullptr ? Value(0) : bound.get(0);
}

Value float_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "float", arguments, {"default"});
  if (value.is_undefined()) return context.fail(value.trouble());
  std::optional<double> real = as_real(value);
  if (value.text() != nullptr && context.spend_characters(*value.text()))
    real = parsed_real(*value.text());
  if (real) return *real;
  return bound.find(0) == nullptr ? Value(0.0) : bound.get(0);
}

Value abs_filter(Context& context, const Value& value, Arguments&) {
  if (const auto number = as_integer(value))
    return *number < 0 ? signed_value(context, "-", value) : Value(*number);
  if (const auto* real = value.real()) return std::abs(*real);
  return context.fail(value.is_undefined() ? value.trouble() : "abs() takes a number");
}

Value round_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "round", arguments, {"precision", "method"});
  const auto real = as_real(value);
  const std::string method = bound.text(1, "common");
  const std::int64_t precision = bound.integer(0, 0);
  if (!real) return context.fail(value.is_undefined() ? value.trouble() : "round() takes a number");
  if (precision < -18 || precision > 18) return context.fail("round(): precision is too large");
  if (method == "common") {
    if (const auto number = as_integer(value); number && precision >= 0) return *number;
    if (precision < 0) {
      const double ten = std::pow(10.0, static_cast<double>(-precision));
      const double rounded = std::nearbyint(*real / ten) * ten;
      return value.real() != nullptr ? Value(rounded) : Value(static_cast<std::int64_t>(rounded));
    }
    // Rounded as written in decimal, halves to even, which is what Python does.
    if (!context.spend(kStepsOfDigits)) return {};
    std::array<char, 400> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), *real,
                                   std::chars_format::fixed, static_cast<int>(precision));
    return parsed_real(std::string_view(digits.data(), end.ptr)).value_or(*real);
  }
  const double ten = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(*real * ten) / ten;
  if (method == "floor") return std::floor(*real * ten) / ten;
  return context.fail("round(): method is common, ceil or floor");
}

constexpr std::pair<std::string_view, Filter> kTextFilters[] = {
    {"tojson", tojson},
    {"trim", trim},
    {"upper", case_changed<text::upper>},
    {"lower", case_changed<text::lower>},
    {"capitalize", case_changed<text::capitalized>},
    {"title", title},
    {"replace", replace_filter},
    {"indent", indent},
    {"string", string_filter},
    {"safe", same},
    {"escape", escape},
    {"e", escape},
    {"format", format_filter},
    {"wordcount", wordcount},
    {"center", center},
    {"truncate", truncate},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const auto& [known, filter] : kTextFilters)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace troupe::jinja
