#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// How a format writes an object that has tags for names and values. Between them stand texts
/// without quotes, and all other values as JSON. A reader takes a value for a text if the member is
/// one of `texts`, or if it is no JSON.
struct TaggedMembers {
  std::string before_name, before_value, after_value;  ///< expressions
  std::string name_end, value_end;                     ///< what no name has in it, and no text
  std::set<std::string> texts = {};       ///< members that can be nothing else
};

/// Writes a grammar's text (README.md). What its functions return is an expression, for use in
/// other rules; the rules that it needs are written along.
class GrammarWriter {
 public:
  /// A text that matches itself.
  static std::string literal(std::string_view text);
  /// The token with this id.
  static std::string token(TokenId id);

  /// Adds a rule under a name of its own and returns that: `hint` is a part of it.
  std::string rule(std::string_view hint, std::string_view expression);
  /// The name of a rule that is defined later, for rules that need each other.
  std::string reserve(std::string_view hint);
  void define(std::string_view name, std::string_view expression);
  /// Adds the rules of another grammar under names that no other rule has, and returns that of its
  /// root. What is wrong in it is found when the whole is compiled.
  std::string include(std::string_view text);
  /// The rules so far.
  const std::string& rules() const { return rules_; }

  /// JSON that the schema (JSON text) says yes to: json_schema.h has what is supported.
  /// kInvalidArgument names what is not, and where: "#/properties/a: ...".
  Result<std::string> json_schema(std::string_view schema);
  /// The same of an object's members, as a format with tags has them.
  Result<std::string> json_members(std::string_view schema, const TaggedMembers& form);
  /// All schemas of a grammar together.
  static constexpr std::size_t kSchemaBytesMax = 8u << 20;
  /// Goes on with what the other one has spent of the bounds of all schemas together.
  void count_work_of(const GrammarWriter& other);
  /// Any JSON object; any JSON value.
  std::string json_object();
  std::string json_value();
  /// Parts of them: white space between two signs, one character of a string, a string, a number.
  std::string json_space();
  std::string json_character();
  std::string json_string();
  std::string json_number();
  /// Texts that a regular expression matches as a whole: regex.h has its syntax.
  /// kInvalidArgument says what is wrong with it, and where.
  Result<std::string> regex(std::string_view pattern);
  /// One of these texts.
  std::string choice(const std::vector<std::string>& texts);

  /// The grammar whose answers are what `root` matches. Ends the writer.
  std::string finish(std::string_view root) &&;

 private:
  Result<std::string> write_schema(std::string_view schema, const TaggedMembers* form);

  std::string rules_;
  std::size_t count_ = 0;
  std::size_t schema_bytes_ = 0, schema_steps_ = 0;  // Of all schemas.
  std::string json_value_, json_object_, json_space_, json_character_, json_string_,
      json_number_;  // Once they are written.
};

}  // namespace troupe
