#include <algorithm>
#include <array>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/format.h"
#include "model/jinja/methods.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

/// The text of a parameter, which may be left out or none.
std::optional<std::string_view> optional_text(Context& context, const Bound& bound,
                                              std::size_t at) {
  const Value* value = bound.find(at);
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (const auto* text = value->text()) return *text;
  context.fail("a text is expected, not '" + std::string(value->type_name()) + "'");
  return std::nullopt;
}

template <text::Ends ends>
Value stripped(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "strip", arguments, {"chars"});
  const auto chars = optional_text(context, bound, 0);
  const std::string& text = *object.text();
  if (!bound.ok() || !context.spend_search(text, chars.value_or(""))) return {};
  const std::string_view rest = text::strip(text, chars, ends);
  return context.spend((text.size() - rest.size()) / 8) ? context.text(std::string(rest)) : Value();
}

/// split() without a separator: words.
void split_words(Context& context, std::string_view text, std::int64_t times, bool from_right,
                 Values& parts) {
  const auto space = [](std::string_view c) {
    std::size_t at = 0;
    return text::is_space(utf8::decode(c, at));
  };
  text = text::strip(text, std::nullopt, from_right ? text::Ends::kRight : text::Ends::kLeft);
  const auto characters = text::characters(text);
  const auto count = static_cast<std::ptrdiff_t>(characters.size());
  std::ptrdiff_t i = from_right ? count - 1 : 0;
  const std::ptrdiff_t step = from_right ? -1 : 1;
  const auto inside = [&] { return i >= 0 && i < count; };
  const auto rest_from = [&](std::ptrdiff_t at) {
    const char* place = characters[static_cast<std::size_t>(at)].data();
    const auto offset = static_cast<std::size_t>(place - text.data());
    const std::size_t length = characters[static_cast<std::size_t>(at)].size();
    return from_right ? text.substr(0, offset + length) : text.substr(offset);
  };
  while (inside() && context.spend(1)) {
    if (times == 0) {
      parts.emplace_back(rest_from(i));
      return;
    }
    const std::string_view rest = rest_from(i);
    while (inside() && !space(characters[static_cast<std::size_t>(i)])) i += step;
    const std::size_t left = inside() ? rest_from(i).size() : 0;
    const std::size_t word = rest.size() - left;
    parts.emplace_back(from_right ? rest.substr(left) : rest.substr(0, word));
    while (inside() && space(characters[static_cast<std::size_t>(i)])) i += step;
    --times;
  }
}

void split_at(Context& context, std::string_view text, std::string_view separator,
              std::int64_t times, bool from_right, Values& parts) {
  while (times != 0 && context.spend(1)) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::size_t after = at + separator.size();
    parts.emplace_back(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
    --times;
  }
  parts.emplace_back(text);
}

template <bool from_right>
Value split(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "split", arguments, {"sep", "maxsplit"});
  const auto separator = optional_text(context, bound, 0);
  const std::int64_t times = bound.integer(1, -1);
  const std::string& text = *object.text();
  if (separator && separator->empty()) context.fail("split() with an empty separator");
  if (separator) context.spend_search(text, *separator);
  // A part takes more memory than its bytes.
  if (!bound.ok() || !context.spend_bytes(text.size())) return {};
  if (!separator && !context.spend_list_of(text)) return {};
  Values parts;
  if (separator)
    split_at(context, text, *separator, times, from_right, parts);
  else
    split_words(context, text, times, from_right, parts);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return context.list(std::move(parts));
}

Value split_lines(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "splitlines", arguments, {"keepends"});
  const bool keep = bound.boolean(0, false);
  std::string_view text = *object.text();
  if (!bound.ok() || !context.spend_characters(text) || !context.spend_bytes(text.size()))
    return {};
  Values lines;
  while (!text.empty() && context.spend(1)) {
    const std::size_t at = std::min(text.find_first_of("\n\r\v\f\x1c\x1d\x1e"), text.size());
    std::size_t after = std::min(at + 1, text.size());
    if (text.substr(at).starts_with("\r\n")) ++after;
    lines.emplace_back(text.substr(0, keep ? after : at));
    text.remove_prefix(after);
  }
  return context.list(std::move(lines));
}

template <bool at_end>
Value begins_or_ends(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"},
              1);
  if (!bound.ok()) return {};
  Value within = object;
  if (bound.find(1) != nullptr || bound.find(2) != nullptr)
    within = slice(context, object, {bound.get(1), bound.get(2), Value::None{}});
  if (!bound.ok()) return {};
  const std::string& whole = *within.text();
  const Value& wish = *bound.find(0);
  const List* several = wish.list();
  const Values one = several == nullptr ? Values{wish} : Values{};
  for (const Value& part : several == nullptr ? one : several->items) {
    if (part.text() == nullptr || (several != nullptr && !several->tuple))
      return context.fail("startswith() and endswith() take a text or a tuple of texts");
    if (!context.spend(1 + part.text()->size() / 64)) return {};
    if (at_end ? whole.ends_with(*part.text()) : whole.starts_with(*part.text())) return true;
  }
  return false;
}

Value replace(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "replace", arguments, {"old", "new", "count"}, 2);
  if (!bound.ok()) return {};
  const Value *old = bound.find(0), *fresh = bound.find(1);
  if (old->text() == nullptr || fresh->text() == nullptr)
    return context.fail("replace() takes texts");
  return replaced(context, *object.text(), {*old->text(), *fresh->text(), bound.integer(2, -1)});
}

Value join(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "join", arguments, {"iterable"}, 1);
  if (!bound.ok()) return {};
  std::string out;
  const auto list = iterated(context, *bound.find(0));
  for (std::size_t i = 0; i < list->items.size() && context.spend(1); ++i) {
    const std::string* part = list->items[i].text();
    if (part == nullptr) return context.fail("join() takes texts");
    if (!context.spend_bytes(part->size() + object.text()->size())) return {};
    if (i > 0) out += *object.text();
    out += *part;
  }
  return Value(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value changed(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "a change of case", arguments, {});
  if (!bound.ok() || !context.spend_characters(*object.text())) return {};
  return context.text(change(*object.text()));
}

template <bool from_right, bool must_be_there>
Value found(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "find", arguments, {"sub", "start", "end"}, 1);
  const auto part = optional_text(context, bound, 0);
  if (!bound.ok() || !part) return context.fail("find() takes a text");
  const std::int64_t size = static_cast<std::int64_t>(text::length(*object.text()));
  std::int64_t from = bound.integer(1, 0);
  if (from < 0) from = std::max<std::int64_t>(from + size, 0);
  const Value piece = slice(context, object, {from, bound.get(2), Value::None{}});
  if (!bound.ok() || !context.spend_search(*piece.text(), *part)) return {};
  const std::string& in = *piece.text();
  const std::size_t at = from > size  ? std::string::npos
                         : from_right ? in.rfind(*part)
                                      : in.find(*part);
  if (at != std::string::npos)
    return from + static_cast<std::int64_t>(text::length(std::string_view(in).substr(0, at)));
  return must_be_there ? context.fail("the text has no such part") : Value(-1);
}

Value counted(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "count", arguments, {"sub"}, 1);
  const auto part = optional_text(context, bound, 0);
  if (!bound.ok() || !part || !context.spend_search(*object.text(), *part)) return {};
  const std::string& text = *object.text();
  if (part->empty()) return static_cast<std::int64_t>(text::length(text)) + 1;
  std::int64_t count = 0;
  for (std::size_t at = text.find(*part); at != std::string::npos;
       at = text.find(*part, at + part->size()))
    ++count;
  return count;
}

template <bool (*is)(char32_t)>
Value all_are(Context& context, const Value& object, Arguments&) {
  if (!context.spend_characters(*object.text())) return {};
  const std::string& text = *object.text();
  for (std::size_t i = 0; i < text.size();)
    if (!is(utf8::decode(text, i))) return false;
  return !text.empty();
}

bool is_letter_or_digit(char32_t c) { return text::is_letter(c) || text::is_digit(c); }

/// isupper(), islower(): some letter is, and none is the other.
template <bool upper>
Value case_is(Context& context, const Value& object, Arguments&) {
  if (!context.spend_characters(*object.text())) return {};
  const std::string& text = *object.text();
  bool some = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = utf8::decode(text, i);
    if (upper ? text::is_lower(c) : text::is_upper(c)) return false;
    some |= upper ? text::is_upper(c) : text::is_lower(c);
  }
  return some;
}

template <bool suffix>
Value without(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "removeprefix", arguments, {"part"}, 1);
  const auto part = optional_text(context, bound, 0);
  if (!bound.ok() || !part || !context.spend(part->size() / 64)) return {};
  std::string_view text = *object.text();
  if (suffix && text.ends_with(*part)) text.remove_suffix(part->size());
  if (!suffix && text.starts_with(*part)) text.remove_prefix(part->size());
  return context.text(std::string(text));
}

template <bool from_right>
Value partition(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "partition", arguments, {"sep"}, 1);
  const auto separator = optional_text(context, bound, 0);
  if (!bound.ok() || !separator || !context.spend_bytes(object.text()->size())) return {};
  if (!context.spend_search(*object.text(), *separator)) return {};
  const std::string& text = *object.text();
  const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
  if (at == std::string::npos)
    return from_right ? Value::tuple({"", "", object}) : Value::tuple({object, "", ""});
  return Value::tuple({text.substr(0, at), *separator, text.substr(at + separator->size())});
}

Value formatted(Context& context, const Value& object, Arguments& arguments) {
  return brace_format(context, *object.text(), arguments);
}

constexpr std::pair<std::string_view, Method> kTextMethods[] = {
    {"strip", stripped<text::Ends::kBoth>},
    {"lstrip", stripped<text::Ends::kLeft>},
    {"rstrip", stripped<text::Ends::kRight>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"startswith", begins_or_ends<false>},
    {"endswith", begins_or_ends<true>},
    {"replace", replace},
    {"join", join},
    {"upper", changed<text::upper>},
    {"lower", changed<text::lower>},
    {"title", changed<text::titled>},
    {"capitalize", changed<text::capitalized>},
    {"find", found<false, false>},
    {"rfind", found<true, false>},
    {"index", found<false, true>},
    {"rindex", found<true, true>},
    {"count", counted},
    {"format", formatted},
    {"isdigit", all_are<text::is_digit>},
    {"isnumeric", all_are<text::is_digit>},
    {"isdecimal", all_are<text::is_digit>},
    {"isalpha", all_are<text::is_letter>},
    {"isalnum", all_are<is_letter_or_digit>},
    {"isspace", all_are<text::is_space>},
    {"isupper", case_is<true>},
    {"islower", case_is<false>},
    {"removeprefix", without<false>},
    {"removesuffix", without<true>},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
};

}  // namespace

Method find_text_method(std::string_view name) {
  for (const auto& [known, method] : kTextMethods)
    if (known == name) return method;
  return nullptr;
}

}  // namespace troupe::jinja
