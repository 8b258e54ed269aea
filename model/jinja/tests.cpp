#include <utility>

#include "model/jinja/call.h"
#include "model/jinja/filters.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"
#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

using Test = bool (*)(Context&, const Value&, const Arguments&);

bool is_defined(Context&, const Value& v, const Arguments&) { return !v.is_undefined(); }
bool is_undefined(Context&, const Value& v, const Arguments&) { return v.is_undefined(); }
bool is_none(Context&, const Value& v, const Arguments&) { return v.is_none(); }
bool is_text(Context&, const Value& v, const Arguments&) { return v.text() != nullptr; }
bool is_number(Context&, const Value& v, const Arguments&) { return as_real(v).has_value(); }
bool is_integer(Context&, const Value& v, const Arguments&) { return v.integer() != nullptr; }
bool is_float(Context&, const Value& v, const Arguments&) { return v.real() != nullptr; }
bool is_boolean(Context&, const Value& v, const Arguments&) { return v.boolean() != nullptr; }
bool is_true(Context&, const Value& v, const Arguments&) { return v.boolean() && *v.boolean(); }
bool is_false(Context&, const Value& v, const Arguments&) { return v.boolean() && !*v.boolean(); }
bool is_mapping(Context&, const Value& v, const Arguments&) { return v.dict() != nullptr; }
bool is_callable(Context&, const Value& v, const Arguments&) { return v.callable() != nullptr; }
bool is_sequence(Context&, const Value& v, const Arguments&) {
  return v.text() || v.list() || v.dict() || v.is_undefined();
}
bool is_iterable(Context&, const Value& v, const Arguments&) {
  return v.text() || v.list() || v.dict() || v.is_undefined() || v.loop();
}

bool remainder_is(Context& context, const Value& v, const Value& by, std::int64_t wanted) {
  const Value rest = operate(context, "%", v, by);
  return !context.failed() && equal(context, rest, wanted);
}
bool is_odd(Context& context, const Value& v, const Arguments&) {
  return remainder_is(context, v, 2, 1);
}
bool is_even(Context& context, const Value& v, const Arguments&) {
  return remainder_is(context, v, 2, 0);
}
bool is_divisible(Context& context, const Value& v, const Arguments& arguments) {
  const Bound bound(context, "divisibleby", arguments, {"num"}, 1);
  return bound.ok() && remainder_is(context, v, *bound.find(0), 0);
}

template <bool upper>
bool case_is(Context& context, const Value& v, const Arguments&) {
  const std::string text = shown(context, v);
  if (!context.spend(text.size() / 2)) return false;
  const std::string other = upper ? text::upper(text) : text::lower(text);
  const std::string opposite = upper ? text::lower(text) : text::upper(text);
  return text == other && text != opposite;
}

/// a is eq(b): the sign of a comparison.
constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<",
               kLessEqual[] = "<=", kGreater[] = ">", kGreaterEqual[] = ">=", kIn[] = "in";
template <const char* sign>
bool compares(Context& context, const Value& v, const Arguments& arguments) {
  const Bound bound(context, sign, arguments, {"other"}, 1);
  return bound.ok() && compare(context, sign, v, *bound.find(0));
}

bool is_same(Context& context, const Value& v, const Arguments& arguments) {
  const Bound bound(context, "sameas", arguments, {"other"}, 1);
  if (!bound.ok() || v.data().index() != bound.find(0)->data().index()) return false;
  if (v.list() != nullptr) return v.list() == bound.find(0)->list();
  if (v.dict() != nullptr) return v.dict() == bound.find(0)->dict();
  return equal(context, v, *bound.find(0));
}

bool names_filter(Context&, const Value& v, const Arguments&) {
  return v.text() != nullptr && is_filter(*v.text());
}
bool names_test(Context&, const Value& v, const Arguments&) {
  return v.text() != nullptr && is_test(*v.text());
}

struct KnownTest {
  std::string_view name;
  Test test;
  bool takes_argument = false;
};
constexpr KnownTest kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_text},
    {"number", is_number},
    {"integer", is_integer},
    {"float", is_float},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"mapping", is_mapping},
    {"callable", is_callable},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible, true},
    {"upper", case_is<true>},
    {"lower", case_is<false>},
    {"eq", compares<kEqual>, true},
    {"equalto", compares<kEqual>, true},
    {"ne", compares<kUnequal>, true},
    {"lt", compares<kLess>, true},
    {"lessthan", compares<kLess>, true},
    {"le", compares<kLessEqual>, true},
    {"gt", compares<kGreater>, true},
    {"greaterthan", compares<kGreater>, true},
    {"ge", compares<kGreaterEqual>, true},
    {"in", compares<kIn>, true},
    {"sameas", is_same, true},
    {"filter", names_filter},
    {"test", names_test},
};

const KnownTest* find_test(std::string_view name) {
  for (const KnownTest& known : kTests)
    if (known.name == name) return &known;
  return nullptr;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Context& context, std::string_view name, const Value& value, Arguments& arguments) {
  const KnownTest* known = find_test(name);
  const bool given = !arguments.positional.empty() || !arguments.named.empty();
  if (known == nullptr)
    context.fail("there is no test '" + std::string(name) + "'");
  else if (given && !known->takes_argument)
    context.fail("the test '" + std::string(name) + "' takes no argument");
  return context.spend(1) && known->test(context, value, arguments);
}

}  // namespace troupe::jinja
