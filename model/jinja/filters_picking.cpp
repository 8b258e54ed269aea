#include <algorithm>
#include <map>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/filters.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

/// As Jinja's map and select have it: what is false has no items, whatever its type.
std::shared_ptr<const List> items_if_any(Context& context, const Value& value) {
  return truthy(value) ? iterated(context, value) : std::make_shared<const List>();
}

Value map(Context& context, const Value& value, Arguments& arguments) {
  const auto list = items_if_any(context, value);
  Values out;
  if (arguments.positional.empty()) {
    Bound bound(context, "map", arguments, {"attribute", "default"}, 1);
    if (!bound.ok()) return {};
    for (const Value& item : list->items) {
      if (!context.spend(1)) return {};
      const Value found = attribute_at(context, item, *bound.find(0));
      out.push_back(found.is_undefined() && bound.find(1) != nullptr ? bound.get(1) : found);
    }
    return context.list(std::move(out));
  }
  const Value name = arguments.positional.front();
  if (name.text() == nullptr) return context.fail("map() takes a filter's name");
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : list->items) {
    if (!context.spend(1)) return {};
    out.push_back(apply_filter(context, *name.text(), item, rest));
  }
  return context.list(std::move(out));
}

template <bool wanted, bool by_attribute>
Value pick(Context& context, const Value& value, Arguments& arguments) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) return context.fail("an attribute's name is missing");
  Value test;
  Arguments rest;
  if (arguments.positional.size() > first) {
    test = arguments.positional[first];
    if (test.text() == nullptr) return context.fail("a test's name is missing");
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  Values out;
  const auto item_list = items_if_any(context, value);
  for (const Value& item : item_list->items) {
    if (!context.spend(1)) return {};
    const Value seen = by_attribute ? attribute_at(context, item, arguments.positional[0]) : item;
    const bool holds =
        test.text() == nullptr ? truthy(seen) : apply_test(context, *test.text(), seen, rest);
    if (holds == wanted) out.push_back(item);
  }
  return context.list(std::move(out));
}

Value groupby(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  if (!bound.ok()) return {};
  struct Item {
    Value key, shown_key, item;
  };
  std::vector<Item> all;
  const auto item_list = iterated(context, value);
  for (const Value& item : item_list->items) {
    if (!context.spend(1)) return {};
    Value key = attribute_at(context, item, *bound.find(0));
    if (key.is_undefined()) key = bound.get(1);
    all.push_back({sort_key(context, key, bound.boolean(2, false)), key, item});
  }
  std::stable_sort(all.begin(), all.end(),
                   [&](const Item& a, const Item& b) { return less(context, a.key, b.key); });
  Values groups;
  for (std::size_t i = 0; i < all.size() && !context.failed();) {
    Values same;
    const std::size_t first = i;
    while (i < all.size() && equal(context, all[i].key, all[first].key))
      same.push_back(all[i++].item);
    if (i == first) ++i;  // NaN
    groups.push_back(Value::tuple({all[first].shown_key, context.list(std::move(same))}));
  }
  return context.list(std::move(groups));
}

Value attr(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "attr", arguments, {"name"}, 1);
  if (!bound.ok()) return {};
  // Attributes only: a dictionary's keys are none.
  const Value found = attribute(context, value, bound.text(0, ""));
  return value.dict() != nullptr && found.callable() == nullptr ? Value::undefined("no attribute")
                                                                : found;
}

constexpr std::pair<std::string_view, Filter> kPickingFilters[] = {
    {"map", map},
    {"select", pick<true, false>},
    {"reject", pick<false, false>},
    {"selectattr", pick<true, true>},
    {"rejectattr", pick<false, true>},
    {"groupby", groupby},
    {"attr", attr},
};

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_text_filter(name)) return filter;
  if (const Filter filter = find_list_filter(name)) return filter;
  return find_picking_filter(name);
}

}  // namespace

Filter find_picking_filter(std::string_view name) {
  for (const auto& [known, filter] : kPickingFilters)
    if (known == name) return filter;
  return nullptr;
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Context& context, std::string_view name, const Value& value,
                   Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) return context.fail("there is no filter '" + std::string(name) + "'");
  return context.spend(1) ? filter(context, value, arguments) : Value();
}

}  // namespace troupe::jinja
