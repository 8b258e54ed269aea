#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// Parses JSON from outside: bounded depth, no duplicate keys, no exceptions.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& file);

/// Reads the keys of one JSON object, keeping the first error. A failed read returns a harmless
/// value, so that a parser reads as a list of keys and asks for the status once.
class JsonReader {
 public:
  /// `where` names the object in errors: "config.json", "config.json, rope_scaling". A value that
  /// is no object is an error.
  JsonReader(const nlohmann::json& object, std::string where);

  /// True when the key is there and not null.
  bool has(const char* key) const;
  const nlohmann::json* find(const char* key) const;

  std::int64_t integer(const char* key, std::int64_t min, std::int64_t max);
  std::int64_t integer_or(const char* key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max);
  std::int32_t int32(const char* key, std::int64_t min, std::int64_t max) {
    return static_cast<std::int32_t>(integer(key, min, max));
  }
  std::int32_t int32_or(const char* key, std::int64_t fallback, std::int64_t min,
                        std::int64_t max) {
    return static_cast<std::int32_t>(integer_or(key, fallback, min, max));
  }
  /// A finite number in [min, max].
  double number(const char* key, double min, double max);
  double number_or(const char* key, double fallback, double min, double max);
  bool boolean_or(const char* key, bool fallback);
  std::string string(const char* key);
  std::string string_or(const char* key, const std::string& fallback);
  /// An integer, a list of them, or nothing.
  std::vector<std::int32_t> ints(const char* key, std::int64_t min, std::int64_t max);

  /// A list of strings, or nothing.
  std::vector<std::string> strings(const char* key);

  /// Records an error about a key unless there is one already.
  void fail(const std::string& key, const std::string& expected);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  void missing(const char* key, const std::string& expected);

  const nlohmann::json* object_;
  std::string where_;
  Status status_;
};

/// The bytes of a regular file of at most `bytes_max`.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max);

}  // namespace troupe
