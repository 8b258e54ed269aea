#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/api_error.h"
#include "runtime/ids.h"

namespace troupe {

/// Reads the fields of one JSON object into typed places. The first thing that is wrong is kept,
/// with the field's name, and everything after it does nothing: read all fields, then look at
/// error(). A field that is absent or null leaves its place as it is.
class FieldReader {
 public:
  /// `text` is the object as it was written; text_of() needs it.
  explicit FieldReader(const nlohmann::json& object, std::string_view text = {})
      : object_(object), text_(text) {}

  const std::optional<ApiError>& error() const { return error_; }
  bool failed() const { return error_.has_value(); }
  void fail(const std::string& field, std::string message);

  /// The value, or nullptr if it is absent or null, or something failed before.
  const nlohmann::json* find(const char* name);

  /// The text of a value that was found, as it was written: names in it are in their order.
  std::string text_of(const char* name) const;

  /// To be called when all fields have been read: refuses a field that nobody has looked for, but
  /// whose name is nearly that of one which somebody has.
  void refuse_misspelt();

  void boolean(const char* name, bool& out);
  void text(const char* name, std::string& out);
  /// Within [low, high]; 5.0 counts as 5, and 1e17 as what it is.
  void integer(const char* name, std::int64_t low, std::int64_t high,
               std::optional<std::int64_t>& out);

  /// A range of numbers that a float32 holds; `open_low`: the lower end itself is not in it.
  struct Range {
    double low, high;
    bool open_low = false;
  };
  void number(const char* name, Range range, std::optional<float>& out);

  /// A text or a list of texts, each 1 to `bytes_max` bytes, at most `count_max`.
  void texts(const char* name, std::size_t count_max, std::size_t bytes_max,
             std::vector<std::string>& out);

 private:
  const nlohmann::json& object_;
  const std::string_view text_;
  std::optional<ApiError> error_;
  std::vector<std::string_view> known_;  ///< all that was looked for
};

/// A list of token ids, not empty; false if it is anything else.
bool read_token_ids(const nlohmann::json& value, std::vector<TokenId>& out);

}  // namespace troupe
