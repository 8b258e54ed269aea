#pragma once

#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// The methods of texts, dictionaries, lists and loops. Those that would change a value are not
/// safe, as in Jinja's immutable sandbox.
bool has_method(const Value& object, std::string_view name);
bool is_safe_method(const Value& object, std::string_view name);
Value bound_method(const Value& object, std::string_view name);
/// Calls a method that the object has.
Value call_method(Context& context, const Value& object, std::string_view name,
                  Arguments& arguments);

/// The parts: methods_text.cpp, methods_other.cpp.
using Method = Value (*)(Context&, const Value& object, Arguments&);
Method find_text_method(std::string_view name);
Method find_other_method(const Value& object, std::string_view name);

}  // namespace troupe::jinja
