#include "model/jinja/operators.h"

#include <cmath>
#include <limits>

#include "model/jinja/format.h"
#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

using Int = std::int64_t;

Value unsupported(Context& context, std::string_view sign, const Value& a, const Value& b) {
  if (a.is_undefined()) return context.fail(a.trouble());
  if (b.is_undefined()) return context.fail(b.trouble());
  return context.fail("'" + std::string(a.type_name()) + "' " + std::string(sign) + " '" +
                      std::string(b.type_name()) + "' is not possible");
}

Value overflow(Context& context) { return context.fail("an integer leaves 64 bits"); }

Int floor_quotient(Int a, Int b) {
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_power(Context& context, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return context.fail("0 has no negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  Int result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result))
      return overflow(context);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow(context);
  }
  return result;
}

Value of_integers(Context& context, std::string_view sign, Int a, Int b) {
  Int result = 0;
  if (sign == "+") return __builtin_add_overflow(a, b, &result) ? overflow(context) : Value(result);
  if (sign == "-") return __builtin_sub_overflow(a, b, &result) ? overflow(context) : Value(result);
  if (sign == "*") return __builtin_mul_overflow(a, b, &result) ? overflow(context) : Value(result);
  if (sign == "**") return integer_power(context, a, b);
  if (b == 0) return context.fail("division by zero");
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) {
    if (sign == "%") return 0;
    return __builtin_sub_overflow(Int{0}, a, &result) ? overflow(context) : Value(result);
  }
  return sign == "//" ? floor_quotient(a, b) : a - floor_quotient(a, b) * b;
}

Value of_reals(Context& context, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    const double power = std::pow(a, b);
    if (std::isnan(power) && !std::isnan(a) && !std::isnan(b))
      return context.fail("a root of a negative number is not real");
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b))
      return context.fail(a == 0 ? "0 has no negative power" : "a number is too large");
    return power;
  }
  if (b == 0) return context.fail("division by zero");
  if (sign == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (sign == "%") return rest == 0 ? std::copysign(0.0, b) : rest;
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value repeated(Context& context, const Value& whole, Int times) {
  times = std::max<Int>(times, 0);
  const auto size = static_cast<std::uint64_t>(
      whole.text() != nullptr ? whole.text()->size() : whole.list()->items.size());
  // What is asked for is spent before it is made.
  if (size > 0 && static_cast<std::uint64_t>(times) > kBytesMax * 16 / size)
    return context.fail("it makes too much text or too long lists");
  const auto count = static_cast<std::uint64_t>(size == 0 ? 0 : times);
  if (const auto* text = whole.text()) {
    if (!context.spend_bytes(size * count)) return {};
    std::string out;
    out.reserve(size * count);
    for (std::uint64_t i = 0; i < count; ++i) out += *text;
    return Value(std::move(out));
  }
  if (!context.spend(size * count) || !context.spend_bytes(size * count * sizeof(Value))) return {};
  Values items;
  for (std::uint64_t i = 0; i < count; ++i)
    items.insert(items.end(), whole.list()->items.begin(), whole.list()->items.end());
  return Value(List{std::move(items), whole.list()->tuple});
}

Value sum(Context& context, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    if (!context.spend_bytes(a.text()->size() + b.text()->size())) return {};
    return Value(*a.text() + *b.text());
  }
  const List *left = a.list(), *right = b.list();
  if (left == nullptr || right == nullptr || left->tuple != right->tuple)
    return unsupported(context, "+", a, b);
  if (!context.spend(left->items.size() + right->items.size())) return {};
  Values items = left->items;
  items.insert(items.end(), right->items.begin(), right->items.end());
  return context.list(std::move(items), left->tuple);
}

}  // namespace

Value operate(Context& context, std::string_view sign, const Value& a, const Value& b) {
  const auto whole_a = as_integer(a), whole_b = as_integer(b);
  if (whole_a && whole_b) return of_integers(context, sign, *whole_a, *whole_b);
  const auto real_a = as_real(a), real_b = as_real(b);
  if (real_a && real_b) return of_reals(context, sign, *real_a, *real_b);
  if (sign == "+") return sum(context, a, b);
  if (sign == "%" && a.text() != nullptr) return percent_format(context, *a.text(), b);
  if (sign == "*") {
    if (whole_b && (a.text() != nullptr || a.list() != nullptr))
      return repeated(context, a, *whole_b);
    if (whole_a && (b.text() != nullptr || b.list() != nullptr))
      return repeated(context, b, *whole_a);
  }
  return unsupported(context, sign, a, b);
}

bool compare(Context& context, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(context, a, b);
  if (sign == "!=") return !equal(context, a, b);
  if (sign == "in") return contains(context, b, a);
  if (sign == "not in") return !contains(context, b, a);
  if (sign == "<") return less(context, a, b);
  if (sign == ">") return less(context, b, a);
  // NaN is neither less nor equal.
  const bool equals = equal(context, a, b);
  const bool below = sign == "<=" ? less(context, a, b) : less(context, b, a);
  return equals || below;
}

Value signed_value(Context& context, std::string_view sign, const Value& a) {
  if (const auto whole = as_integer(a))
    return sign == "+" ? Value(*whole) : of_integers(context, "-", 0, *whole);
  if (const auto* real = a.real()) return sign == "+" ? *real : -*real;
  if (a.is_undefined()) return context.fail(a.trouble());
  return context.fail("'" + std::string(a.type_name()) + "' has no sign");
}

}  // namespace troupe::jinja
