#include "model/grammar/json_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/grammar/decimal.h"

namespace troupe {

/// Builds the tree from the parser's events: nothing here is recursive.
class JsonDocumentBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Kind = JsonNode::Kind;

  bool null() override { return put(Kind::kNull) != nullptr; }
  bool boolean(bool value) override {
    JsonNode* node = put(Kind::kBoolean);
    if (node) node->boolean = value;
    return node;
  }
  bool number_integer(std::int64_t value) override { return text(Kind::kNumber, value); }
  bool number_unsigned(std::uint64_t value) override { return text(Kind::kNumber, value); }
  bool number_float(double, const std::string& digits) override {
    JsonNode* node = put(Kind::kNumber);
    if (node) node->text = digits;
    return node;
  }
  bool string(std::string& value) override {
    JsonNode* node = put(Kind::kString);
    if (node) node->text = std::move(value);
    return node;
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Kind::kObject); }
  bool start_array(std::size_t) override { return open(Kind::kArray); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    JsonNode& object = *open_.back();
    open_.pop_back();
    if (JsonDocument::seal(object)) return true;
    trouble_ = object.place() + ": a key is there twice.";
    return false;
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception& e) override {
    if (trouble_.empty())
      trouble_ = e.id == 406 ? "it has a number that is too large."
                             : "it is no JSON (byte " + std::to_string(byte) + ").";
    return false;
  }

  JsonDocument document_;
  std::string trouble_;

 private:
  bool text(Kind kind, auto value) {
    JsonNode* node = put(kind);
    if (node) node->text = std::to_string(value);
    return node;
  }
  bool open(Kind kind) {
    JsonNode* node = put(kind);
    if (!node) return false;
    open_.push_back(node);
    if (open_.size() <= JsonDocument::kDepthMax) return true;
    trouble_ = "it is nested more than " + std::to_string(JsonDocument::kDepthMax) + " deep.";
    return false;
  }
  JsonNode* put(Kind kind) {
    JsonNode& node = document_.nodes_.emplace_back();
    node.kind = kind;
    node.id = document_.nodes_.size();
    if (open_.empty()) {
      document_.root_ = &node;
      return &node;
    }
    JsonNode& parent = *open_.back();
    node.parent = &parent;
    if (parent.is(Kind::kObject)) {
      node.step = key_;
      parent.keys.push_back(std::move(key_));
    } else {
      node.step = std::to_string(parent.items.size());
    }
    parent.items.push_back(&node);
    return &node;
  }

  std::vector<JsonNode*> open_;
  std::string key_;
};

const JsonNode* JsonNode::find(std::string_view key) const {
  if (kind != Kind::kObject) return nullptr;
  const auto at =
      std::lower_bound(sorted.begin(), sorted.end(), key,
                       [this](std::uint32_t i, std::string_view k) { return keys[i] < k; });
  return at != sorted.end() && keys[*at] == key ? items[*at] : nullptr;
}

std::string JsonNode::place() const {
  if (!parent) return "#";
  std::string escaped;
  for (const char c : step) {
    if (c == '~')
      escaped += "~0";
    else if (c == '/')
      escaped += "~1";
    else
      escaped += c;
  }
  return parent->place() + "/" + escaped;
}

bool same_value(const JsonNode& a, const JsonNode& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case JsonNode::Kind::kNull:
      return true;
    case JsonNode::Kind::kBoolean:
      return a.boolean == b.boolean;
    case JsonNode::Kind::kString:
      return a.text == b.text;
    case JsonNode::Kind::kNumber: {
      const auto digits = [](const std::string& text) {
        return text.find_first_of("-.eE") == std::string::npos;
      };
      if (a.text == b.text || (digits(a.text) && digits(b.text))) return a.text == b.text;
      return Decimal::parse(a.text) == Decimal::parse(b.text);
    }
    case JsonNode::Kind::kArray:
      return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                        [](const auto* x, const auto* y) { return same_value(*x, *y); });
    case JsonNode::Kind::kObject:
      break;
  }
  if (a.keys.size() != b.keys.size()) return false;
  for (std::size_t i = 0; i < a.keys.size(); ++i) {
    const JsonNode* other = b.find(a.keys[i]);
    if (!other || !same_value(*a.items[i], *other)) return false;
  }
  return true;
}

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  if (text.size() > kBytesMax)
    return invalid_argument("it has more than " + std::to_string(kBytesMax) + " bytes.");
  JsonDocumentBuilder builder;
  if (nlohmann::json::sax_parse(text, &builder)) return std::move(builder.document_);
  return invalid_argument(builder.trouble_);
}

JsonNode& JsonDocument::make(JsonNode::Kind kind, const JsonNode& place) {
  JsonNode& node = nodes_.emplace_back();
  node.kind = kind;
  node.id = nodes_.size();
  node.parent = place.parent;
  node.step = place.step;
  return node;
}

void JsonDocument::add(JsonNode& object, std::string key, const JsonNode& value) {
  object.keys.push_back(std::move(key));
  object.items.push_back(&value);
}

bool JsonDocument::seal(JsonNode& object) {
  object.sorted.resize(object.keys.size());
  std::iota(object.sorted.begin(), object.sorted.end(), 0u);
  std::sort(object.sorted.begin(), object.sorted.end(),
            [&](std::uint32_t a, std::uint32_t b) { return object.keys[a] < object.keys[b]; });
  return std::adjacent_find(object.sorted.begin(), object.sorted.end(),
                            [&](std::uint32_t a, std::uint32_t b) {
                              return object.keys[a] == object.keys[b];
                            }) == object.sorted.end();
}

}  // namespace troupe
