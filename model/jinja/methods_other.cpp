#include <algorithm>
#include <array>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/methods.h"
#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

constexpr std::array<std::string_view, 8> kListChangers = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictChangers = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};

Value dict_get(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "get", arguments, {"key", "default"}, 1);
  if (!bound.ok()) return {};
  const Value* found = object.dict()->find(context, *bound.find(0));
  return found != nullptr ? *found : bound.get(1);
}

Value dict_parts(Context& context, const Dict& dict, bool keys, bool values) {
  if (!context.spend(dict.items().size()) ||
      !context.spend_bytes(dict.items().size() * 2 * sizeof(Value)))
    return {};
  Values all;
  for (const auto& [key, value] : dict.items())
    all.push_back(keys && values ? Value::tuple({key, value}) : keys ? key : value);
  return context.list(std::move(all));
}

Value dict_items(Context& context, const Value& object, Arguments&) {
  return dict_parts(context, *object.dict(), true, true);
}
Value dict_keys(Context& context, const Value& object, Arguments&) {
  return dict_parts(context, *object.dict(), true, false);
}
Value dict_values(Context& context, const Value& object, Arguments&) {
  return dict_parts(context, *object.dict(), false, true);
}
Value copied(Context&, const Value& object, Arguments&) { return object; }

Value list_count(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "count", arguments, {"value"}, 1);
  if (!bound.ok()) return {};
  std::int64_t count = 0;
  for (const Value& item : object.list()->items) count += equal(context, item, *bound.find(0));
  return count;
}

Value list_index(Context& context, const Value& object, Arguments& arguments) {
  Bound bound(context, "index", arguments, {"value"}, 1);
  if (!bound.ok()) return {};
  const Values& items = object.list()->items;
  for (std::size_t i = 0; i < items.size() && !context.failed(); ++i)
    if (equal(context, items[i], *bound.find(0))) return static_cast<std::int64_t>(i);
  return context.fail("the value is not in the list");
}

Value loop_cycle(Context& context, const Value& object, Arguments& arguments) {
  if (arguments.positional.empty()) return context.fail("cycle() needs items");
  return arguments.positional[object.loop()->index % arguments.positional.size()];
}

constexpr std::array<std::pair<std::string_view, Method>, 5> kDictMethods = {{
    {"get", dict_get},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"copy", copied},
}};
constexpr std::array<std::pair<std::string_view, Method>, 3> kListMethods = {{
    {"count", list_count},
    {"index", list_index},
    {"copy", copied},
}};

template <class Table>
Method method_in(const Table& table, std::string_view name) {
  for (const auto& [known, method] : table)
    if (known == name) return method;
  return nullptr;
}

Method find_method(const Value& object, std::string_view name) {
  return object.text() != nullptr ? find_text_method(name) : find_other_method(object, name);
}

}  // namespace

Method find_other_method(const Value& object, std::string_view name) {
  if (object.dict() != nullptr) return method_in(kDictMethods, name);
  if (object.list() != nullptr && !(object.list()->tuple && name == "copy"))
    return method_in(kListMethods, name);
  if (object.loop() != nullptr && name == "cycle") return loop_cycle;
  return nullptr;
}

bool has_method(const Value& object, std::string_view name) {
  return find_method(object, name) != nullptr;
}

bool is_safe_method(const Value& object, std::string_view name) {
  const auto in = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (object.list() != nullptr && !object.list()->tuple) return !in(kListChangers);
  return object.dict() == nullptr || !in(kDictChangers);
}

Value bound_method(const Value& object, std::string_view name) {
  return Callable{std::string(name),
                  [object, method = find_method(object, name)](Context& context, Arguments& given) {
                    return method(context, object, given);
                  },
                  object.height() + 1};
}

Value call_method(Context& context, const Value& object, std::string_view name,
                  Arguments& arguments) {
  return find_method(object, name)(context, object, arguments);
}

}  // namespace troupe::jinja
