#include "actors/gateway/field_reader.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

using nlohmann::json;

std::string show(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return std::string(text, end);
}

std::string describe(const FieldReader::Range& range) {
  if (std::isinf(range.high))
    return (range.open_low ? "greater than " : "at least ") + show(range.low);
  return std::string("in ") + (range.open_low ? "(" : "[") + show(range.low) + ", " +
         show(range.high) + "]";
}

}  // namespace

void FieldReader::fail(const std::string& field, std::string message) {
  if (!error_) error_ = bad_field(field, std::move(message));
}

const json* FieldReader::find(const char* name) const {
  if (error_) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::boolean(const char* name, bool& out) {
  const json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return fail(name, std::string(name) + " must be true or false.");
  out = value->get<bool>();
}

void FieldReader::text(const char* name, std::string& out) {
  const json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return fail(name, std::string(name) + " must be a string.");
  out = value->get<std::string>();
}

void FieldReader::integer(const char* name, std::int64_t low, std::int64_t high,
                          std::optional<std::int64_t>& out) {
  const json* value = find(name);
  if (value == nullptr) return;
  std::optional<std::int64_t> number;
  if (value->is_number_unsigned()) {
    const auto v = value->get<std::uint64_t>();
    if (v <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      number = static_cast<std::int64_t>(v);
    }
  } else if (value->is_number_integer()) {
    number = value->get<std::int64_t>();
  } else if (value->is_number_float()) {
    const double v = value->get<double>();
    if (v == std::floor(v) && std::abs(v) < 0x1p63) {
      number = static_cast<std::int64_t>(v);
    }
  } else {
    return fail(name, std::string(name) + " must be an integer.");
  }
  if (!number || *number < low || *number > high) {
    return fail(name, std::string(name) + " must be an integer in [" + std::to_string(low) + ", " +
                          std::to_string(high) + "], not " + value->dump() + ".");
  }
  out = number;
}

void FieldReader::number(const char* name, Range range, std::optional<float>& out) {
  const json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return fail(name, std::string(name) + " must be a number.");
  const double v = value->get<double>();
  const auto inside = [&range](double x) {
    return (range.open_low ? x > range.low : x >= range.low) && x <= range.high;
  };
  const float narrow = static_cast<float>(v);
  // A double just above an open end may round onto it, and a large one to infinity.
  if (!inside(v) || !inside(narrow) || std::isinf(narrow)) {
    const std::string wish = inside(v) ? "a number that a float32 holds" : describe(range);
    return fail(name, std::string(name) + " must be " + wish + ", not " + value->dump() + ".");
  }
  out = narrow;
}

void FieldReader::texts(const char* name, std::size_t count_max, std::size_t bytes_max,
                        std::vector<std::string>& out) {
  const json* value = find(name);
  if (value == nullptr) return;
  const std::string field = name;
  const auto add = [&](const json& item) {
    if (!item.is_string()) return fail(field, field + " must be a string or a list of strings.");
    auto text = item.get<std::string>();
    if (text.empty()) return fail(field, field + " must not hold an empty string.");
    if (text.size() > bytes_max) {
      return fail(field,
                  field + " must not hold strings over " + std::to_string(bytes_max) + " bytes.");
    }
    out.push_back(std::move(text));
  };
  if (!value->is_array()) return add(*value);
  if (value->size() > count_max) {
    return fail(field, field + " must hold at most " + std::to_string(count_max) + " strings.");
  }
  for (const json& item : *value) add(item);
}

bool read_token_ids(const json& value, std::vector<TokenId>& out) {
  if (!value.is_array() || value.empty()) return false;
  out.clear();
  out.reserve(value.size());
  for (const json& item : value) {
    if (!item.is_number_unsigned()) return false;
    const auto id = item.get<std::uint64_t>();
    if (id > static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max())) return false;
    out.push_back(static_cast<TokenId>(id));
  }
  return true;
}

}  // namespace troupe
