#pragma once

#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// `a sign b` for + - * / // % **. Integers have 64 bits: beyond them it fails.
Value operate(Context& context, std::string_view sign, const Value& a, const Value& b);
/// `a sign b` for == != < <= > >= in, not in.
bool compare(Context& context, std::string_view sign, const Value& a, const Value& b);
/// -a, +a
Value signed_value(Context& context, std::string_view sign, const Value& a);

/// a.name: a method or an attribute, then an item. Undefined if there is none, and for names that
/// begin with an underscore.
Value attribute(Context& context, const Value& a, std::string_view name);
/// a[key]: an item, then a method or an attribute.
Value item(Context& context, const Value& a, const Value& key);
/// a[from:to:step]; none for what is left out.
struct Slice {
  Value from, to, step;
};
Value slice(Context& context, const Value& a, const Slice& range);

}  // namespace troupe::jinja
