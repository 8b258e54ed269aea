#include "model/jinja/value.h"

#include <algorithm>
#include <array>

#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

/// What a key is found by: a text is itself, anything else begins with a byte that no text has.
/// Numbers that are equal are one key, as in Python. Empty if a value of this kind is no key.
std::string key_name(const Value& key) {
  if (const auto* text = key.text()) return *text;
  if (const auto* flag = key.boolean())
    return *flag ? "\xFF"
                   "1"
                 : "\xFF"
                   "0";
  if (const auto* number = key.integer()) return "\xFF" + std::to_string(*number);
  if (const auto* real = key.real()) {
    const auto whole = whole_number(*real);
    return "\xFF" + (whole ? std::to_string(*whole) : real_text(*real));
  }
  if (key.is_none()) return "\xFFnone";
  if (const auto* list = key.list(); list != nullptr && list->tuple) {
    std::string name = "\xFF(";
    for (const Value& item : list->items) {
      const std::string part = key_name(item);
      if (part.empty() && item.text() == nullptr) return {};
      name += std::to_string(part.size()) + ":" + part;
    }
    return name;
  }
  return {};
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  if (key.text() != nullptr) return named(*key.text());
  const std::string name = key_name(key);
  return name.empty() ? nullptr : named(name);
}

const Value* Dict::named(std::string_view key) const {
  const auto place = places_.find(std::string(key));
  return place == places_.end() ? nullptr : &items_[place->second].second;
}

bool Dict::set(Value key, Value value) {
  std::string name = key_name(key);
  if (name.empty() && key.text() == nullptr) return false;
  height_ = std::max({height_, key.height() + 1, value.height() + 1});
  const auto [place, added] = places_.try_emplace(std::move(name), items_.size());
  if (added) {
    items_.emplace_back(std::move(key), std::move(value));
  } else {
    items_[place->second].second = std::move(value);
  }
  return true;
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
