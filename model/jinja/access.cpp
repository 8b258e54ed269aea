#include <algorithm>

#include "model/jinja/methods.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

/// Of a name in a message: it may be a text of megabytes.
std::string brief(std::string_view name) {
  return std::string(name.substr(0, text::offset(name.substr(0, kNameBytesMax), 60)));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return loop.items->items[loop.index + 1];
  return Value::undefined(name == "previtem"   ? "there is no previous item"
                          : name == "nextitem" ? "there is no next item"
                                               : "loop has no attribute '" + brief(name) + "'");
}

/// A method or an attribute, if there is one of this name.
std::optional<Value> own_attribute(const Value& a, std::string_view name) {
  if (name.starts_with('_') || !is_safe_method(a, name)) {
    return Value::undefined("access to attribute '" + brief(name) + "' of '" +
                            std::string(a.type_name()) + "' object is unsafe");
  }
  if (has_method(a, name)) return bound_method(a, name);
  if (const Loop* loop = a.loop()) return loop_attribute(*loop, name);
  if (const Namespace* space = a.space()) {
    const auto found = space->attributes.find(name);
    if (found != space->attributes.end()) return found->second;
  }
  if (const Callable* callable = a.callable(); callable != nullptr && name == "name")
    return Value(callable->name);
  return std::nullopt;
}

std::optional<Value> own_item(Context& context, const Value& a, const Value& key) {
  if (const Dict* dict = a.dict()) {
    const Value* found = dict->find(context, key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  auto index = as_integer(key);
  if (!index) return std::nullopt;
  const std::string* text = a.text();
  const List* list = a.list();
  if (text == nullptr && list == nullptr) return std::nullopt;
  const auto length =
      static_cast<std::int64_t>(list != nullptr ? list->items.size() : text::length(*text));
  if (*index < 0) *index += length;
  if (*index < 0 || *index >= length) return std::nullopt;
  if (list != nullptr) return list->items[static_cast<std::size_t>(*index)];
  const std::size_t first = text::offset(*text, static_cast<std::size_t>(*index));
  const std::string_view rest = std::string_view(*text).substr(first);
  return Value(rest.substr(0, text::offset(rest, 1)));
}

Value gone(const Value& a, const Value& key) {
  const std::string type(a.type_name());
  if (const auto* name = key.text())
    return Value::undefined("'" + type + "' object has no attribute '" + brief(*name) + "'");
  const auto index = as_integer(key);
  return Value::undefined("'" + type + "' object has no element " +
                          (index ? std::to_string(*index) : std::string(key.type_name())));
}

/// The bounds of a slice as Python's slice.indices gives them.
struct Bounds {
  std::int64_t from, to, step;
};

std::optional<Bounds> bounds_of(Context& context, const Slice& range, std::int64_t length) {
  const auto part = [&](const Value& value, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    const auto number = as_integer(value);
    if (!number) context.fail("a slice's bounds are integers or none");
    return number.value_or(fallback);
  };
  const std::int64_t step = part(range.step, 1);
  if (step == 0) context.fail("a slice's step cannot be zero");
  const bool back = step < 0;
  const std::int64_t low = back ? -1 : 0, high = back ? length - 1 : length;
  const auto clipped = [&](const Value& value, std::int64_t fallback) {
    std::int64_t at = part(value, fallback);
    if (value.is_none()) return at;
    if (at < 0) at += length;
    return std::clamp(at, low, high);
  };
  Bounds bounds{clipped(range.from, back ? high : low), clipped(range.to, back ? low : high), step};
  if (context.failed()) return std::nullopt;
  return bounds;
}

}  // namespace

Value attribute(Context& context, const Value& a, std::string_view name) {
  if (a.is_undefined()) return context.fail(a.trouble());
  if (!context.spend(name.size() / 64)) return {};
  if (auto own = own_attribute(a, name)) return *own;
  const Value* found = a.dict() != nullptr ? a.dict()->named(name) : nullptr;
  return found != nullptr ? *found : gone(a, Value(brief(name)));
}

Value item(Context& context, const Value& a, const Value& key) {
  if (a.is_undefined()) return context.fail(a.trouble());
  if (a.text() != nullptr && !context.spend(a.text()->size() / 64)) return {};
  if (key.text() != nullptr && !context.spend(key.text()->size() / 64)) return {};
  if (auto found = own_item(context, a, key)) return *found;
  if (context.failed()) return {};
  if (key.text() != nullptr)
    if (auto own = own_attribute(a, *key.text())) return *own;
  return gone(a, key);
}

Value slice(Context& context, const Value& a, const Slice& range) {
  if (a.is_undefined()) return context.fail(a.trouble());
  const std::string* text = a.text();
  const List* list = a.list();
  if (text == nullptr && list == nullptr)
    return context.fail("'" + std::string(a.type_name()) + "' object cannot be sliced");
  const std::size_t cost = text != nullptr ? text->size() / 64 : 0;
  if (!context.spend(cost)) return {};
  const auto length =
      static_cast<std::int64_t>(list != nullptr ? list->items.size() : text::length(*text));
  const auto bounds = bounds_of(context, range, length);
  if (!bounds) return {};
  const auto [from, to, step] = *bounds;
  if (text != nullptr && step == 1) {
    const std::size_t first = text::offset(*text, static_cast<std::size_t>(from));
    const std::size_t last =
        std::max(first, text::offset(*text, static_cast<std::size_t>(std::max(from, to))));
    return context.text(text->substr(first, last - first));
  }
  std::vector<std::string_view> characters;
  if (text != nullptr) {
    if (!context.spend_list_of(*text)) return {};
    characters = text::characters(*text);
  }
  Values items;
  std::string out;
  // Steps can be as large as integers are: stop before they overflow.
  for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
    if (!context.spend(1)) return {};
    if (list != nullptr)
      items.push_back(list->items[static_cast<std::size_t>(i)]);
    else
      out += characters[static_cast<std::size_t>(i)];
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (text != nullptr) return context.text(std::move(out));
  return context.list(std::move(items), list->tuple);
}

}  // namespace troupe::jinja
