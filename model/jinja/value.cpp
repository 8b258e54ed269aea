#include "model/jinja/value.h"

#include <algorithm>
#include <array>
#include <optional>

#include "model/jinja/context.h"
#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

/// Appends what a part of a tuple is found by. Numbers that are equal are one key, as in Python.
/// False if it is of a kind that is no key, or costs too much: tuples share their parts, so that
/// small ones may be long.
bool append_key(Context& context, const Value& key, std::string& out) {
  if (!context.spend(1)) return false;
  if (const auto* text = key.text()) {
    if (!context.spend_bytes(text->size())) return false;
    out += std::to_string(text->size()) + ":" + *text;
  } else if (const auto number = as_integer(key)) {
    out += "i" + std::to_string(*number) + ",";
  } else if (const auto* real = key.real()) {
    const auto whole = whole_number(*real);
    out += (whole ? "i" + std::to_string(*whole) : "r" + real_text(*real)) + ",";
  } else if (key.is_none()) {
    out += 'n';
  } else if (const auto* list = key.list(); list != nullptr && list->tuple) {
    out += '(';
    for (const Value& item : list->items)
      if (!append_key(context, item, out)) return false;
    out += ')';
  } else {
    return false;
  }
  return true;
}

/// The same of a whole key that is no text: it begins with a byte that no text has.
std::optional<std::string> key_name(Context& context, const Value& key) {
  std::string name = "\xFF";
  return append_key(context, key, name) ? std::optional(std::move(name)) : std::nullopt;
}

}  // namespace

const Value* Dict::find(Context& context, const Value& key) const {
  if (const auto* text = key.text())
    return context.spend(text->size() / 64) ? named(*text) : nullptr;
  const auto name = key_name(context, key);
  return name ? named(*name) : nullptr;
}

const Value* Dict::named(std::string_view key) const {
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : &items_[place->second].second;
}

bool Dict::set(Context& context, Value key, Value value) {
  if (const auto* text = key.text()) {
    if (!context.spend_bytes(text->size())) return false;
    put(*text, std::move(key), std::move(value));
    return true;
  }
  auto name = key_name(context, key);
  if (name) put(std::move(*name), std::move(key), std::move(value));
  return name.has_value();
}

void Dict::set(std::string key, Value value) {
  Value shown(key);
  put(std::move(key), std::move(shown), std::move(value));
}

void Dict::put(std::string name, Value key, Value value) {
  height_ = std::max({height_, key.height() + 1, value.height() + 1});
  const std::size_t bytes = name.size();
  const auto [place, added] = places_.try_emplace(std::move(name), items_.size());
  if (added) {
    key_bytes_ += bytes;
    items_.emplace_back(std::move(key), std::move(value));
  } else {
    items_[place->second].second = std::move(value);
  }
}

Value::Value(List list) {
  for (const Value& item : list.items) list.height = std::max(list.height, item.height() + 1);
  data_ = std::make_shared<const List>(std::move(list));
}

Value Value::undefined(std::string trouble) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(trouble))};
  return value;
}

std::shared_ptr<const List> Value::shared_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list == nullptr ? nullptr : *list;
}

std::shared_ptr<const Callable> Value::shared_callable() const {
  const auto* callable = std::get_if<std::shared_ptr<const Callable>>(&data_);
  return callable == nullptr ? nullptr : *callable;
}

int Value::height() const {
  if (const List* l = list()) return l->height;
  if (const Dict* d = dict()) return d->height();
  if (const Callable* c = callable()) return c->height;
  if (const Loop* l = loop()) return l->items->height + 1;
  return 0;
}

std::string Value::trouble() const {
  const auto* gone = std::get_if<Undefined>(&data_);
  return gone != nullptr && gone->trouble ? *gone->trouble : "a value is undefined";
}

std::string_view Value::type_name() const {
  constexpr std::array<std::string_view, std::variant_size_v<Data>> kNames = {
      "Undefined", "NoneType", "bool",      "int",      "float",      "str",
      "list",      "dict",     "Namespace", "function", "LoopContext"};
  if (list() != nullptr && list()->tuple) return "tuple";
  return kNames[data_.index()];
}

}  // namespace troupe::jinja
