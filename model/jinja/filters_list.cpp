#include <algorithm>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/filters.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

Value length_filter(Context& context, const Value& value, Arguments&) {
  const auto count = length(context, value);
  return count ? Value(*count) : Value();
}

Value list_filter(Context& context, const Value& value, Arguments&) {
  const auto list = iterated(context, value);
  return list->tuple ? context.list(list->items) : Value(list);
}

Value join_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "join", arguments, {"d", "attribute"});
  const std::string between = bound.text(0, "");
  const auto list = iterated(context, value);
  std::string out;
  for (std::size_t i = 0; i < list->items.size() && context.spend(1); ++i) {
    const Value& item = list->items[i];
    const Value part = bound.find(1) == nullptr ? item : attribute_at(context, item, bound.get(1));
    if (!context.spend_bytes(between.size())) return {};
    if (i > 0) out += between;
    out += shown(context, part);
  }
  return Value(std::move(out));
}

Value first(Context& context, const Value& value, Arguments&) {
  if (value.text() != nullptr && truthy(value))
    return slice(context, value, {Value::None{}, 1, Value::None{}});
  const auto list = iterated(context, value);
  if (list->items.empty()) return Value::undefined("No first item, sequence was empty.");
  return list->items.front();
}

Value last(Context& context, const Value& value, Arguments&) {
  if (value.text() != nullptr && truthy(value))
    return slice(context, value, {-1, Value::None{}, Value::None{}});
  const auto list = iterated(context, value);
  if (list->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return list->items.back();
}

Value reverse(Context& context, const Value& value, Arguments&) {
  const Value all = value.text() != nullptr ? value : Value(iterated(context, value));
  return context.failed() ? Value()
                          : slice(context, all, {Value::None{}, Value::None{}, Value(-1)});
}

Value default_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "default", arguments, {"default_value", "boolean"});
  const bool gone = value.is_undefined() || (bound.boolean(1, false) && !truthy(value));
  if (!gone) return value;
  return bound.find(0) == nullptr ? Value("") : bound.get(0);
}

Value items(Context& context, const Value& value, Arguments&) {
  if (value.is_undefined()) return Value(Values{});
  if (value.dict() == nullptr) return context.fail("Can only get item pairs from a mapping.");
  Values pairs;
  for (const auto& [key, item] : value.dict()->items()) pairs.push_back(Value::tuple({key, item}));
  return context.list(std::move(pairs));
}

/// Sorts by keys that were made beforehand.
Value sorted(Context& context, std::vector<std::pair<Value, Value>> keyed, bool backwards) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(context, b.first, a.first) : less(context, a.first, b.first);
  });
  Values out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return context.list(std::move(out));
}

Value sort(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool exact = bound.boolean(1, false);
  std::vector<std::pair<Value, Value>> keyed;
  const auto item_list = iterated(context, value);
  for (const Value& item : item_list->items) {
    if (!context.spend(1)) return {};
    const Value key = bound.find(2) == nullptr ? item : attribute_at(context, item, bound.get(2));
    keyed.emplace_back(sort_key(context, key, exact), item);
  }
  return sorted(context, std::move(keyed), bound.boolean(0, false));
}

Value dictsort(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") return context.fail("dictsort(): by is key or value");
  if (value.dict() == nullptr) return context.fail("dictsort() takes a mapping");
  const bool exact = bound.boolean(0, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.dict()->items()) {
    if (!context.spend(1)) return {};
    keyed.emplace_back(sort_key(context, by == "key" ? key : item, exact),
                       Value::tuple({key, item}));
  }
  return sorted(context, std::move(keyed), bound.boolean(2, false));
}

template <bool most>
Value extreme(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, most ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto list = iterated(context, value);
  if (list->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best, best_key;
  for (std::size_t i = 0; i < list->items.size() && !context.failed(); ++i) {
    const Value& item = list->items[i];
    const Value from = bound.find(1) == nullptr ? item : attribute_at(context, item, bound.get(1));
    const Value key = sort_key(context, from, bound.boolean(0, false));
    const bool better =
        i == 0 || (most ? less(context, best_key, key) : less(context, key, best_key));
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value sum(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "sum", arguments, {"attribute", "start"});
  Value total = bound.find(1) == nullptr ? Value(0) : bound.get(1);
  if (total.text() != nullptr) return context.fail("sum() takes no text to start with");
  const auto item_list = iterated(context, value);
  for (const Value& item : item_list->items) {
    if (!context.spend(1)) return {};
    total = operate(context, "+", total,
                    bound.get(0).is_none() ? item : attribute_at(context, item, bound.get(0)));
  }
  return total;
}

Value unique(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  Values out;
  const auto item_list = iterated(context, value);
  for (const Value& item : item_list->items) {
    if (!context.spend(1)) return {};
    const Value from = bound.find(1) == nullptr ? item : attribute_at(context, item, bound.get(1));
    const Value key = sort_key(context, from, bound.boolean(0, false));
    if (seen.find(context, key) != nullptr) continue;
    if (!seen.set(context, key, true)) return context.fail("unique(): an item cannot be compared");
    out.push_back(item);
  }
  return context.list(std::move(out));
}

Value batch(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 1);
  if (bound.ok() && (size < 1 || size > kRangeMax)) return context.fail("batch(): a bad size");
  if (!bound.ok()) return {};
  const auto line = static_cast<std::size_t>(size);
  Values lines, open;
  const auto list = iterated(context, value);
  for (const Value& item : list->items) {
    open.push_back(item);
    if (open.size() == line) lines.push_back(context.list(std::exchange(open, {})));
  }
  if (!open.empty()) {
    if (!bound.get(1).is_none() && context.spend(line)) open.resize(line, bound.get(1));
    lines.push_back(context.list(std::move(open)));
  }
  return context.list(std::move(lines));
}

Value slice_filter(Context& context, const Value& value, Arguments& arguments) {
  Bound bound(context, "slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t count = bound.integer(0, 1);
  if (bound.ok() && (count < 1 || count > kRangeMax)) return context.fail("slice(): a bad number");
  if (!bound.ok()) return {};
  const auto slices = static_cast<std::size_t>(count);
  const auto list = iterated(context, value);
  const std::size_t each = list->items.size() / slices, longer = list->items.size() % slices;
  auto from = list->items.begin();
  Values out;
  for (std::size_t i = 0; i < slices; ++i) {
    const auto to = from + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    Values part(from, to);
    if (!bound.get(1).is_none() && i >= longer) part.push_back(bound.get(1));
    out.push_back(context.list(std::move(part)));
    from = to;
  }
  return context.list(std::move(out));
}

constexpr std::pair<std::string_view, Filter> kListFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"list", list_filter},
    {"join", join_filter},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"default", default_filter},
    {"d", default_filter},
    {"items", items},
    {"sort", sort},
    {"dictsort", dictsort},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"unique", unique},
    {"batch", batch},
    {"slice", slice_filter},
};

}  // namespace

Filter find_list_filter(std::string_view name) {
  for (const auto& [known, filter] : kListFilters)
    if (known == name) return filter;
  return nullptr;
}

Value attribute_at(Context& context, const Value& value, const Value& path) {
  if (path.text() == nullptr) return item(context, value, path);
  Value found = value;
  std::string_view rest = *path.text();
  while (context.spend(1)) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view name = rest.substr(0, dot);
    const bool number =
        !name.empty() && name.find_first_not_of("0123456789") == name.npos && name.size() < 10;
    std::int64_t index = 0;
    for (const char c : number ? name : std::string_view()) index = index * 10 + (c - '0');
    found = item(context, found, number ? Value(index) : Value(name));
    if (dot == rest.size() || context.failed()) return found;
    rest.remove_prefix(dot + 1);
  }
  return {};
}

Value sort_key(Context& context, const Value& value, bool case_sensitive) {
  if (case_sensitive || value.text() == nullptr) return value;
  if (!context.spend_characters(*value.text())) return {};
  return context.text(text::lower(*value.text()));
}

}  // namespace troupe::jinja
