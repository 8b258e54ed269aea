#pragma once

#include <string>
#include <string_view>

#include "model/jinja/context.h"
#include "model/jinja/value.h"
#include "runtime/result.h"

namespace troupe::jinja {

/// JSON text as a value; objects keep the order of their keys. `what` names it in errors. Bounded
/// depth and no key twice, as parse_json (model/json_reader.h) has it.
Result<Value> value_from_json(std::string_view text, const std::string& what);

/// How many values hang in this one, itself included, and how many bytes their texts take.
struct ValueSize {
  std::uint64_t values = 0, bytes = 0;
};
ValueSize size_of(const Value& value);

/// Python's json.dumps.
struct JsonForm {
  bool ascii = false;   ///< ensure_ascii
  bool sorted = false;  ///< sort_keys
  bool several_lines = false;
  std::string indent;  ///< of one level; only with several_lines
  std::string comma = ", ", colon = ": ";
};
std::string json_text(Context& context, const Value& value, const JsonForm& form);

}  // namespace troupe::jinja
