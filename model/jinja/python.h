#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// Values as Python shows, compares and counts them. What fails, fails in the context.

/// str() and repr(); they spend the bytes.
std::string shown(Context& context, const Value& value);
std::string represented(Context& context, const Value& value);
/// repr() of a number: 1.0, 1e+16, inf.
std::string real_text(double value);
/// repr() of a text, in quotes.
std::string quoted_text(std::string_view text);

/// The integer that a number is, if it is one of 64 bits.
std::optional<std::int64_t> whole_number(double value);
/// Booleans, integers and floats as a float.
std::optional<double> as_real(const Value& value);
/// Booleans and integers.
std::optional<std::int64_t> as_integer(const Value& value);

bool truthy(const Value& value);
bool equal(Context& context, const Value& a, const Value& b);
/// a < b; values that have no order fail.
bool less(Context& context, const Value& a, const Value& b);
bool contains(Context& context, const Value& whole, const Value& part);
/// len(); nothing, and a failure, if the value has none.
std::optional<std::int64_t> length(Context& context, const Value& value);
/// What iterating gives: items, keys, characters. Never null; empty after a failure.
std::shared_ptr<const List> iterated(Context& context, const Value& value);

}  // namespace troupe::jinja
