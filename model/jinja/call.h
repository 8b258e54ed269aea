#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// The arguments of a call, given to named parameters as Python does.
class Bound {
 public:
  /// Fails in the context if one is missing, unknown, or given twice. The first `required`
  /// parameters must be there.
  Bound(Context& context, std::string_view callee, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  /// Null if it was not given.
  const Value* find(std::size_t parameter) const { return values_[parameter]; }
  /// None if it was not given.
  Value get(std::size_t parameter) const;
  /// A parameter's value of a kind; a failure, and the fallback, if it has another. None counts as
  /// not given.
  std::int64_t integer(std::size_t parameter, std::int64_t fallback);
  bool boolean(std::size_t parameter, bool fallback) const;
  std::string text(std::size_t parameter, std::string_view fallback);
  bool ok() const { return !context_.failed(); }

 private:
  Context& context_;
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace troupe::jinja
