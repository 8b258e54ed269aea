#include "model/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

/// Reads what a format holds, from the left.
class FormReader {
 public:
  explicit FormReader(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  char take() {
    const char c = peek();
    if (!rest_.empty()) rest_.remove_prefix(1);
    return c;
  }
  bool take(char c) {
    if (rest_.empty() || peek() != c) return false;
    take();
    return true;
  }
  std::string_view until(std::string_view stops) {
    const std::size_t at = std::min(rest_.find_first_of(stops), rest_.size());
    const std::string_view text = rest_.substr(0, at);
    rest_.remove_prefix(at);
    return text;
  }
  /// -1 if there are no digits; numbers stay below a million.
  int number() {
    int value = -1;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min(std::max(value, 0) * 10 + (take() - '0'), 1'000'000);
    }
    return value;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

/// The arguments of one percent format.
class PercentValues {
 public:
  PercentValues(Context& context, const Value& value) : context_(context), value_(value) {}

  Value next() {
    const List* list = value_.list();
    if (list != nullptr && list->tuple) {
      if (used_ < list->items.size()) return list->items[used_++];
    } else if (used_++ == 0) {
      return value_;
    }
    return context_.fail("a format has too few arguments");
  }
  Value named(std::string_view name) {
    used_ = 1;
    if (value_.dict() == nullptr) return context_.fail("a format needs a mapping");
    const Value* found = value_.dict()->named(name);
    return found != nullptr ? *found : context_.fail("a format's key is missing");
  }
  bool all_used() const {
    if (value_.list() != nullptr && value_.list()->tuple)
      return used_ >= value_.list()->items.size();
    return used_ > 0 || value_.dict() != nullptr || value_.list() != nullptr ||
           value_.is_undefined();
  }

 private:
  Context& context_;
  const Value& value_;
  std::size_t used_ = 0;
};

void read_flags(FormReader& form, Layout& layout) {
  layout.align = '>';
  for (char flag = form.peek();
       std::string_view("-+ #0").find(flag) != std::string_view::npos && flag != '\0';
       flag = form.peek()) {
    form.take();
    if (flag == '-')
      layout.align = '<';
    else if (flag == '#')
      layout.alternate = true;
    else if (flag == '+' || (flag == ' ' && layout.sign != '+'))
      layout.sign = flag;
    else if (flag == '0')
      layout.fill = "0";
  }
  if (layout.align == '<')
    layout.fill = " ";
  else if (layout.fill == "0")
    layout.align = '=';
}

std::string percent_part(Context& context, FormReader& form, PercentValues& values) {
  if (form.take('%')) return "%";
  std::optional<Value> named;
  if (form.take('(')) {
    named = values.named(form.until(")"));
    form.take();
  }
  Layout layout;
  read_flags(form, layout);
  if (form.peek() == '*') {
    form.take();
    layout.width =
        static_cast<std::size_t>(std::max<std::int64_t>(as_integer(values.next()).value_or(0), 0));
  } else {
    layout.width = static_cast<std::size_t>(std::max(form.number(), 0));
  }
  if (form.take('.')) layout.precision = std::max(form.number(), 0);
  char type = form.take();
  if (std::string_view("srdiuxXoeEfFgGca").find(type) == std::string_view::npos || type == '\0') {
    context.fail("a format has an unknown conversion");
    return {};
  }
  Value value = named ? *named : values.next();
  if (context.failed()) return {};
  if (type == 's' || type == 'r' || type == 'a') {
    if (layout.align == '=') layout.align = '>';
    layout.fill = " ";
    value = type == 's' ? Value(shown(context, value)) : Value(represented(context, value));
    layout.type = 's';
  } else if (type != 'c') {
    if (!as_real(value)) {
      context.fail("a number is required, not " + std::string(value.type_name()));
      return {};
    }
    const bool whole = std::string_view("diuxXo").find(type) != std::string_view::npos;
    if (whole && value.real() != nullptr) {
      const auto number =
          whole_number(value.real()[0] < 0 ? std::ceil(*value.real()) : std::floor(*value.real()));
      if (!number) context.fail("a number is too large for an integer");
      value = number.value_or(0);
    } else if (const auto number = as_integer(value)) {
      value = *number;
    }
    layout.type = type == 'i' || type == 'u' ? 'd' : type;
  } else {
    layout.type = value.text() != nullptr ? 's' : 'c';
  }
  return laid_out(context, value, layout);
}

/// What a brace format is given.
class BraceValues {
 public:
  BraceValues(Context& context, const Arguments& arguments)
      : context_(context), arguments_(arguments) {}

  /// "", "0", "name", with ".attribute" and "[item]" after it.
  Value find(std::string_view path) {
    FormReader reader(path);
    const std::string_view first = reader.until(".[");
    Value value = base(first);
    while (!reader.done() && context_.spend(1)) {
      if (reader.take('.')) {
        value = attribute(context_, value, reader.until(".["));
      } else {
        reader.take();
        const std::string_view key = reader.until("]");
        reader.take();
        const auto index = whole(key);
        value = item(context_, value, index ? Value(*index) : Value(key));
      }
    }
    return value;
  }

 private:
  static std::optional<std::int64_t> whole(std::string_view text) {
    std::int64_t number = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size() || number < 0)
      return std::nullopt;
    return number;
  }

  Value base(std::string_view name) {
    const auto index = name.empty()
                           ? std::optional<std::int64_t>(static_cast<std::int64_t>(next_++))
                           : whole(name);
    if (!index) {
      if (!context_.spend(arguments_.named.size() / 16)) return {};
      for (const auto& [key, value] : arguments_.named)
        if (key == name) return value;
      return context_.fail("a format's argument '" + std::string(name) + "' is missing");
    }
    const auto place = static_cast<std::size_t>(*index);
    if (place < arguments_.positional.size()) return arguments_.positional[place];
    return context_.fail("a format has too few arguments");
  }

  Context& context_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

Layout read_layout(Context& context, std::string_view text) {
  Layout layout;
  const std::size_t first = text::offset(text, 1);
  const std::string_view aligns = "<>^=";
  if (first < text.size() && aligns.find(text[first]) != std::string_view::npos) {
    layout.fill = text.substr(0, first);
    layout.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && aligns.find(text[0]) != std::string_view::npos) {
    layout.align = text[0];
    text.remove_prefix(1);
  }
  FormReader form(text);
  if (form.peek() == '+' || form.peek() == '-' || form.peek() == ' ') layout.sign = form.take();
  layout.alternate = form.take('#');
  if (form.take('0') && layout.align == 0) {
    layout.fill = "0";
    layout.align = '=';
  }
  layout.width = static_cast<std::size_t>(std::max(form.number(), 0));
  layout.thousands = form.take(',');
  if (form.take('.')) layout.precision = std::max(form.number(), 0);
  if (!form.done()) layout.type = form.take();
  if (!form.done() ||
      std::string_view("\0sdxXobceEfFgG%", 15).find(layout.type) == std::string_view::npos)
    context.fail("a format specification is unknown");
  return layout;
}

std::string brace_part(Context& context, FormReader& form, BraceValues& values) {
  const std::string_view path = form.until("!:}");
  Value value = values.find(path);
  if (form.take('!')) {
    const char conversion = form.take();
    if (conversion == 'r' || conversion == 'a')
      value = represented(context, value);
    else if (conversion == 's')
      value = shown(context, value);
    else
      context.fail("a format has an unknown conversion");
  }
  std::string_view spec;
  if (form.take(':')) spec = form.until("}");
  if (!form.take('}')) context.fail("a format's '}' is missing");
  if (context.failed()) return {};
  if (spec.empty()) return shown(context, value);
  return laid_out(context, value, read_layout(context, spec));
}

}  // namespace

Value percent_format(Context& context, std::string_view form, const Value& value) {
  if (!context.spend_characters(form)) return {};
  FormReader reader(form);
  PercentValues values(context, value);
  std::string out;
  while (!reader.done() && context.spend(1)) {
    out += reader.until("%");
    if (reader.take('%')) out += percent_part(context, reader, values);
  }
  if (!context.failed() && !values.all_used())
    return context.fail("not all arguments of a format are used");
  return context.text(std::move(out));
}

Value brace_format(Context& context, std::string_view form, const Arguments& arguments) {
  if (!context.spend_characters(form)) return {};
  FormReader reader(form);
  BraceValues values(context, arguments);
  std::string out;
  while (!reader.done() && context.spend(1)) {
    out += reader.until("{}");
    if (reader.done()) break;
    const char brace = reader.take();
    if (reader.take(brace))
      out += brace;
    else if (brace == '{')
      out += brace_part(context, reader, values);
    else
      return context.fail("a single '}' in a format");
  }
  return context.text(std::move(out));
}

Value replaced(Context& context, std::string_view text, const Replacement& what) {
  if (!context.spend_search(text, what.old)) return {};
  std::string out;
  std::int64_t left = what.count;
  const auto put_fresh = [&] {
    --left;
    out += what.fresh;
    return context.spend(1) && context.spend_bytes(what.fresh.size());
  };
  if (what.old.empty()) {
    if (!context.spend_list_of(text)) return {};
    for (const std::string_view c : text::characters(text)) {
      if (left != 0 && !put_fresh()) return {};
      out += c;
    }
    if (left != 0 && !put_fresh()) return {};
    return context.text(std::move(out));
  }
  for (std::size_t at = text.find(what.old); at != std::string_view::npos && left != 0;
       at = text.find(what.old)) {
    out += text.substr(0, at);
    text.remove_prefix(at + what.old.size());
    if (!put_fresh()) return {};
  }
  out += text;
  return context.text(std::move(out));
}

}  // namespace troupe::jinja
