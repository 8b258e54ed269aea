#include "model/jinja/call.h"

#include <algorithm>

#include "model/jinja/python.h"

namespace troupe::jinja {

Bound::Bound(Context& context, std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : context_(context), callee_(callee), names_(parameters), values_(parameters.size(), nullptr) {
  const std::string who = std::string(callee) + "()";
  if (arguments.positional.size() > names_.size())
    context.fail(who + " takes at most " + std::to_string(names_.size()) + " arguments");
  for (std::size_t i = 0; i < std::min(arguments.positional.size(), names_.size()); ++i)
    values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) {
      context.fail(who + " has no parameter '" + name + "'");
      continue;
    }
    const Value*& slot = values_[static_cast<std::size_t>(place - names_.begin())];
    if (slot != nullptr) context.fail(who + " got '" + name + "' twice");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr) context.fail(who + " needs '" + std::string(names_[i]) + "'");
}

Value Bound::get(std::size_t parameter) const {
  return values_[parameter] == nullptr ? Value(Value::None{}) : *values_[parameter];
}

std::int64_t Bound::integer(std::size_t parameter, std::int64_t fallback) {
  const Value value = get(parameter);
  if (value.is_none()) return fallback;
  if (const auto number = as_integer(value)) return *number;
  context_.fail(std::string(callee_) + "(): '" + std::string(names_[parameter]) +
                "' must be an integer");
  return fallback;
}

bool Bound::boolean(std::size_t parameter, bool fallback) const {
  return values_[parameter] == nullptr ? fallback : truthy(*values_[parameter]);
}

std::string Bound::text(std::size_t parameter, std::string_view fallback) {
  const Value value = get(parameter);
  if (value.is_none()) return std::string(fallback);
  return shown(context_, value);
}

}  // namespace troupe::jinja
