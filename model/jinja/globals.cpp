#include "model/jinja/globals.h"

#include <array>
#include <ctime>
#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

using Function = Value (*)(Context&, Arguments&);

Value range(Context& context, Arguments& arguments) {
  Bound bound(context, "range", arguments, {"start", "stop", "step"}, 1);
  if (!bound.ok()) return {};
  std::int64_t from = bound.integer(0, 0), to = bound.integer(1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (bound.find(1) == nullptr) std::swap(from, to);
  if (bound.find(1) == nullptr) from = 0;
  if (step == 0) return context.fail("range() with a step of zero");
  Values items;
  for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
    if (static_cast<std::int64_t>(items.size()) >= kRangeMax)
      return context.fail("range() is limited to " + std::to_string(kRangeMax) + " items");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return context.list(std::move(items));
}

/// What dict() and namespace() are given: pairs or a mapping, then names.
Value pairs(Context& context, Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (from.dict() != nullptr) {
      dict = *from.dict();
    } else {
      const auto pair_list = iterated(context, from);
      for (const Value& pair : pair_list->items) {
        if (!context.spend(1)) return {};
        const auto parts = iterated(context, pair);
        if (parts->items.size() != 2 || !dict.set(context, parts->items[0], parts->items[1]))
          return context.fail("dict() takes pairs");
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return context.dict(std::move(dict));
}

Value new_namespace(Context& context, Arguments& arguments) {
  const Value from = pairs(context, arguments);
  if (context.failed()) return {};
  auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : from.dict()->items())
    space->attributes.insert_or_assign(shown(context, key), value);
  return context.space(std::move(space));
}

Value raise_exception(Context& context, Arguments& arguments) {
  Bound bound(context, "raise_exception", arguments, {"message"}, 1);
  return bound.ok() ? context.raise(bound.text(0, "")) : Value();
}

Value strftime_now(Context& context, Arguments& arguments) {
  Bound bound(context, "strftime_now", arguments, {"format"}, 1);
  if (!bound.ok()) return {};
  const std::string form = bound.text(0, "");
  context.spend(form.size());
  if (form.empty() || form.size() > 200) return context.text({});
  const std::time_t now = context.now_unix_s();
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 2048> out{};
  const std::size_t size = std::strftime(out.data(), out.size(), form.c_str(), &parts);
  return context.text(std::string(out.data(), size));
}

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", range},
    {"dict", pairs},
    {"namespace", new_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Value global_function(std::string_view name) {
  for (const auto& [known, function] : kFunctions)
    if (known == name) return Callable{std::string(name), function};
  return Value::undefined("'" + std::string(name) + "' is undefined");
}

}  // namespace troupe::jinja
