#include "model/jinja/python.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

void append_repr(Context& context, const Value& value, std::string& out) {
  if (!context.spend(1)) return;
  if (const auto* text = value.text()) {
    if (context.spend_characters(*text) && context.spend_bytes(text->size()))
      out += quoted_text(*text);
  } else if (const List* list = value.list()) {
    out += list->tuple ? '(' : '[';
    for (std::size_t i = 0; i < list->items.size() && !context.failed(); ++i) {
      if (i > 0) out += ", ";
      append_repr(context, list->items[i], out);
    }
    if (list->tuple && list->items.size() == 1) out += ',';
    out += list->tuple ? ')' : ']';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : dict->items()) {
      if (context.failed()) return;
      if (!first) out += ", ";
      first = false;
      append_repr(context, key, out);
      out += ": ";
      append_repr(context, item, out);
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += shown(context, value);
  }
}

bool equal_lists(Context& context, const List& a, const List& b) {
  if (a.tuple != b.tuple || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (context.failed() || !equal(context, a.items[i], b.items[i])) return false;
  return true;
}

bool equal_dicts(Context& context, const Dict& a, const Dict& b) {
  if (a.items().size() != b.items().size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.find(context, key);
    if (context.failed() || other == nullptr || !equal(context, value, *other)) return false;
  }
  return true;
}

Value incomparable(Context& context, const Value& a, const Value& b) {
  if (a.is_undefined()) return context.fail(a.trouble());
  if (b.is_undefined()) return context.fail(b.trouble());
  return context.fail("'" + std::string(a.type_name()) + "' and '" + std::string(b.type_name()) +
                      "' have no order");
}

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::scientific);
  const std::string text(digits.data(), end.ptr);
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::size_t first = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + first, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  std::string plain(digits.data(), fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string shown(Context& context, const Value& value) {
  if (const auto* text = value.text()) {
    return context.spend_bytes(text->size()) ? *text : std::string();
  }
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (const auto* flag = value.boolean()) return *flag ? "True" : "False";
  if (const auto* number = value.integer()) return std::to_string(*number);
  if (const auto* real = value.real()) return real_text(*real);
  if (const auto* call = value.callable()) return "<function " + call->name + ">";
  if (value.space() != nullptr) return "<Namespace>";
  if (const Loop* loop = value.loop()) {
    return "<LoopContext " + std::to_string(loop->index + 1) + "/" +
           std::to_string(loop->items->items.size()) + ">";
  }
  return represented(context, value);
}

std::string represented(Context& context, const Value& value) {
  std::string out;
  append_repr(context, value, out);
  return context.spend_bytes(out.size()) ? out : std::string();
}

std::optional<std::int64_t> whole_number(double value) {
  if (!(value >= -9.2e18 && value <= 9.2e18) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* flag = value.boolean()) return *flag ? 1 : 0;
  if (const auto* number = value.integer()) return *number;
  return std::nullopt;
}

std::optional<double> as_real(const Value& value) {
  if (const auto* real = value.real()) return *real;
  if (const auto number = as_integer(value)) return static_cast<double>(*number);
  return std::nullopt;
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto real = as_real(value)) return *real != 0;
  if (const auto* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items().empty();
  return true;
}

bool equal(Context& context, const Value& a, const Value& b) {
  if (!context.spend(1)) return false;
  const auto whole_a = as_integer(a), whole_b = as_integer(b);
  if (whole_a && whole_b) return *whole_a == *whole_b;
  const auto real_a = as_real(a), real_b = as_real(b);
  if (real_a && real_b) return *real_a == *real_b;
  if (a.data().index() != b.data().index()) return false;
  if (a.text() != nullptr) {
    // Comparing costs as much as making.
    return a.text() == b.text() || (a.text()->size() == b.text()->size() &&
                                    context.spend(a.text()->size() / 64) && *a.text() == *b.text());
  }
  if (a.list() != nullptr) return equal_lists(context, *a.list(), *b.list());
  if (a.dict() != nullptr) return equal_dicts(context, *a.dict(), *b.dict());
  if (a.is_none() || a.is_undefined()) return true;
  return a.space() == b.space() && a.callable() == b.callable() && a.loop() == b.loop();
}

bool less(Context& context, const Value& a, const Value& b) {
  if (!context.spend(1)) return false;
  const auto whole_a = as_integer(a), whole_b = as_integer(b);
  if (whole_a && whole_b) return *whole_a < *whole_b;
  const auto real_a = as_real(a), real_b = as_real(b);
  if (real_a && real_b) return *real_a < *real_b;
  if (a.text() != nullptr && b.text() != nullptr) {
    // UTF-8 sorts as its code points do.
    return context.spend(a.text()->size() / 64) && *a.text() < *b.text();
  }
  const List *list_a = a.list(), *list_b = b.list();
  if (list_a == nullptr || list_b == nullptr || list_a->tuple != list_b->tuple) {
    incomparable(context, a, b);
    return false;
  }
  const std::size_t both = std::min(list_a->items.size(), list_b->items.size());
  for (std::size_t i = 0; i < both && !context.failed(); ++i) {
    if (!equal(context, list_a->items[i], list_b->items[i]))
      return less(context, list_a->items[i], list_b->items[i]);
  }
  return list_a->items.size() < list_b->items.size();
}

bool contains(Context& context, const Value& whole, const Value& part) {
  if (const auto* text = whole.text()) {
    if (part.text() == nullptr) {
      context.fail("a text can only contain a text, not '" + std::string(part.type_name()) + "'");
      return false;
    }
    return context.spend_search(*text, *part.text()) &&
           text->find(*part.text()) != std::string::npos;
  }
  if (const Dict* dict = whole.dict()) {
    if (part.dict() != nullptr || (part.list() != nullptr && !part.list()->tuple)) {
      context.fail("unhashable type: '" + std::string(part.type_name()) + "'");
      return false;
    }
    return dict->find(context, part) != nullptr;
  }
  const auto list = iterated(context, whole);
  for (const Value& item : list->items) {
    if (context.failed()) return false;
    if (equal(context, item, part)) return true;
  }
  return false;
}

std::optional<std::int64_t> length(Context& context, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const auto* text = value.text()) {
    if (!context.spend(text->size() / 64)) return std::nullopt;
    return static_cast<std::int64_t>(text::length(*text));
  }
  if (const List* list = value.list()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->items().size());
  if (const Loop* loop = value.loop()) return static_cast<std::int64_t>(loop->items->items.size());
  context.fail("object of type '" + std::string(value.type_name()) + "' has no length");
  return std::nullopt;
}

std::shared_ptr<const List> iterated(Context& context, const Value& value) {
  if (auto list = value.shared_list()) return list;
  Values items;
  if (const Dict* dict = value.dict()) {
    if (context.spend(dict->items().size()))
      for (const auto& [key, item] : dict->items()) items.push_back(key);
  } else if (const auto* text = value.text()) {
    if (context.spend(text->size()) && context.spend_bytes(text->size() * 64))
      for (const std::string_view c : text::characters(*text)) items.emplace_back(c);
  } else if (!value.is_undefined()) {
    context.fail("'" + std::string(value.type_name()) + "' object is not iterable");
  }
  return Value(std::move(items)).shared_list();
}

}  // namespace troupe::jinja
