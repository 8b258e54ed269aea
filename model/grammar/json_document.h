#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// A JSON value that knows where it stands. Members keep their order, numbers their digits.
struct JsonNode {
  enum class Kind : unsigned char { kNull, kBoolean, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;  ///< a string's value, a number as it is written
  std::vector<const JsonNode*> items;
  std::vector<std::string> keys;      ///< of an object; `items` has the values
  std::vector<std::uint32_t> sorted;  ///< members by key

  const JsonNode* parent = nullptr;
  std::string step;    ///< what leads here from the parent: a key, or an index
  std::size_t id = 0;  ///< in the order of the document

  bool is(Kind other) const { return kind == other; }
  bool is_false() const { return kind == Kind::kBoolean && !boolean; }
  bool is_true() const { return kind == Kind::kBoolean && boolean; }
  /// An object's member, or nothing.
  const JsonNode* find(std::string_view key) const;
  /// "#/properties/a": where it stands in its document.
  std::string place() const;
};

/// Equal as JSON has it: 1 and 1.0 are, so are objects in another order.
bool same_value(const JsonNode& a, const JsonNode& b);

/// Owns the values of a document, and those that are made beside it.
class JsonDocument {
 public:
  static constexpr std::size_t kBytesMax = 1u << 20;
  static constexpr int kDepthMax = 200;

  /// kInvalidArgument on what is no JSON, too deep, or has a key twice.
  static Result<JsonDocument> parse(std::string_view text);

  const JsonNode& root() const { return *root_; }
  /// A value of our own that is taken for a part of `place` in messages.
  JsonNode& make(JsonNode::Kind kind, const JsonNode& place);
  std::size_t size() const { return nodes_.size(); }

  /// Appends a member; `seal` afterwards.
  static void add(JsonNode& object, std::string key, const JsonNode& value);
  /// Makes members findable. False if a key is there twice.
  static bool seal(JsonNode& object);

 private:
  friend class JsonDocumentBuilder;
  std::deque<JsonNode> nodes_;
  const JsonNode* root_ = nullptr;
};

}  // namespace troupe
