#pragma once

#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"

namespace troupe::jinja {

/// `value | name(arguments)`; a filter that does not exist fails.
Value apply_filter(Context& context, std::string_view name, const Value& value,
                   Arguments& arguments);
/// `value is name(arguments)`
bool apply_test(Context& context, std::string_view name, const Value& value, Arguments& arguments);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

using Filter = Value (*)(Context&, const Value&, Arguments&);
/// Null if it has none of this name. The parts: texts, numbers and JSON; lists; lists by a filter,
/// a test or an attribute.
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_picking_filter(std::string_view name);

/// The item that a path as "function.name" or an index leads to.
Value attribute_at(Context& context, const Value& value, const Value& path);
/// Texts in lower case, unless `case_sensitive`: what sorting and comparing look at.
Value sort_key(Context& context, const Value& value, bool case_sensitive);

}  // namespace troupe::jinja
