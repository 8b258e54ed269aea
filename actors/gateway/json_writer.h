#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// `text` with every byte that is not UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

/// The number of characters (code points) of valid UTF-8.
std::size_t utf8_length(std::string_view text);

/// The longest beginning of `text` of at most `bytes_max` (4 or more) after which no character is
/// cut in two.
std::size_t whole_characters(std::string_view text, std::size_t bytes_max);

/// Writes compact JSON into a string, in the order of the calls. Strings are repaired to UTF-8;
/// floats come in the shortest form that restores the float32. The caller keeps brackets balanced.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text) { return begin_text().more_text(text).end_text(); }
  /// A text in pieces, of whole characters.
  JsonWriter& begin_text();
  JsonWriter& more_text(std::string_view text);
  JsonWriter& end_text();
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonWriter& value(T number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return raw(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  /// JSON has no infinities: they, and what is not a number, become -9999, as vLLM writes a
  /// log-probability of nothing.
  JsonWriter& value(float number);
  JsonWriter& null() { return raw("null"); }
  /// A value that is JSON already.
  JsonWriter& raw(std::string_view json);

  template <class T>
  JsonWriter& member(std::string_view name, T&& v) {
    key(name);
    return value(std::forward<T>(v));
  }

  /// A member that is null where there is no text.
  JsonWriter& member_or_null(std::string_view name, std::string_view text) {
    key(name);
    return text.empty() ? null() : value(text);
  }

  const std::string& text() const& { return out_; }
  std::string text() && { return std::move(out_); }
  /// What was written since the last time; writing goes on.
  std::string take() { return std::exchange(out_, {}); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool first_ = true;  // No comma before the next key or value.
};

}  // namespace troupe
