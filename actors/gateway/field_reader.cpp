#include "actors/gateway/field_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "model/chat/json_extent.h"
#include "runtime/edit_distance.h"

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

/// Fields of other servers that are not what they look like.
constexpr std::string_view kOfOthers[] = {"models", "return_tokens", "top_a", "top_n",
                                          "top_h",  "top_r",         "min_k", "mode"};
/// No name that is known is as long. Comparing takes time.
constexpr std::size_t kNameBytesMax = 40;
constexpr std::size_t kUnknownMax = 64;

/// "topP" is written for "top_p".
std::string letters(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != '_' && c != '-') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return plain;
}

/// What `name` was meant to be; nullptr: nothing that is known.
const std::string_view* meant_by(std::string_view name,
                                 const std::vector<std::string_view>& known) {
  const std::string written = letters(name);
  const auto edits = [&](std::string_view field) { return edit_distance(written, letters(field)); };
  const auto nearest = std::min_element(known.begin(), known.end(),
                                        [&](auto a, auto b) { return edits(a) < edits(b); });
  if (nearest == known.end()) return nullptr;
  // Short names are near to much.
  const std::size_t size = letters(*nearest).size();
  return edits(*nearest) <= (size < 4 ? 0u : size < 8 ? 1u : 2u) ? &*nearest : nullptr;
}

}  // namespace

void FieldReader::fail(const std::string& field, std::string message) {
  if (!error_) error_ = bad_field(field, std::move(message));
}

const json* FieldReader::find(const char* name) {
  if (error_) return nullptr;
  known_.emplace_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string FieldReader::text_of(const char* name) const {
  const std::string_view text =
      json_member(text_.substr(std::min(text_.find('{'), text_.size())), name);
  return text.empty() ? object_.at(name).dump() : std::string(text);  // its name may have escapes
}

void FieldReader::refuse_misspelt() {
  if (error_) return;
  std::size_t unknown = 0;
  for (const auto& [name, value] : object_.items()) {
    const auto is_name = [&name = name](std::string_view other) { return other == name; };
    if (value.is_null() || name.size() > kNameBytesMax || std::ranges::any_of(known_, is_name) ||
        std::ranges::any_of(kOfOthers, is_name))
      continue;
    if (++unknown > kUnknownMax) return;
    if (const auto* meant = meant_by(name, known_))
      return fail(name,
                  "There is no field '" + name + "'; did you mean '" + std::string(*meant) + "'?");
  }
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
