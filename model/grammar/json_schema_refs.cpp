// What a $ref means: a pointer, an anchor or an id within the document.

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

/// "%25" is '%'.
std::string percent_decoded(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int low = c | 0x20;
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
    i += 2;
  }
  return out;
}

/// A reference as seen from `base` (RFC 3986, without dots in paths).
std::string resolved(const std::string& base, const std::string& reference) {
  const std::size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find_first_of("/?#") > colon) return reference;
  if (reference.empty()) return base;
  const std::size_t scheme = base.find("://");
  const std::size_t path =
      scheme == std::string::npos ? base.find('/') : base.find('/', scheme + 3);
  if (reference.front() == '/')
    return (path == std::string::npos ? base : base.substr(0, path)) + reference;
  const std::size_t last = base.rfind('/');
  if (last == std::string::npos || (scheme != std::string::npos && last < scheme + 3))
    return scheme == std::string::npos ? reference : base + "/" + reference;
  return base.substr(0, last + 1) + reference;
}

std::string without_fragment(const std::string& text) { return text.substr(0, text.find('#')); }

/// The id of a schema that is a document of its own.
const std::string* own_id(const JsonNode& node) {
  for (const char* key : {"$id", "id"}) {
    const JsonNode* id = node.find(key);
    if (id && id->is(JsonNode::Kind::kString) && !id->text.empty() && id->text.front() != '#')
      return &id->text;
  }
  return nullptr;
}

/// Where schemas have no ids: these hold values, and names that users chose.
bool holds_no_schema(const JsonNode& node) {
  return node.step == "enum" || node.step == "const" || node.step == "default" ||
         node.step == "examples" || node.step == "properties";
}

}  // namespace

std::string JsonSchema::base_of(const Node& node) {
  std::vector<const Node*> above;
  for (const Node* at = &node; at; at = at->parent)
    if (own_id(*at) && !(at->parent && holds_no_schema(*at))) above.push_back(at);
  std::string base;
  for (auto at = above.rbegin(); at != above.rend(); ++at) {
    base = without_fragment(resolved(base, *own_id(**at)));
    if (!work(node, base.size() / kBytesOfStep)) return "";
  }
  return base;
}

void JsonSchema::collect_ids() {
  std::vector<const Node*> open{&document_.root()};
  while (!open.empty() && !failed()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Node* item : node->items)
      if (!item->items.empty()) open.push_back(item);
    if (!node->is(Node::Kind::kObject) || (node->parent && holds_no_schema(*node))) continue;
    if (own_id(*node)) ids_.try_emplace(base_of(*node), node);
    const auto name = [&](const char* key, bool hash) {
      const Node* anchor = node->find(key);
      if (!anchor || !anchor->is(Node::Kind::kString)) return;
      if (hash && !anchor->text.starts_with('#')) return;
      ids_.try_emplace(base_of(*node) + (hash ? "" : "#") + anchor->text, node);
    };
    name("$anchor", false);
    name("$dynamicAnchor", false);
    name("$id", true);
    name("id", true);
  }
  ids_.try_emplace("", &document_.root());
}

const JsonSchema::Node* JsonSchema::target(const Node& schema, const std::string& reference) {
  const std::string whole = percent_decoded(reference);
  const std::string base = base_of(schema);
  const std::string address =
      whole.empty() || whole.front() == '#' ? base : resolved(base, without_fragment(whole));
  const std::size_t hash = whole.find('#');
  const std::string fragment = hash == std::string::npos ? "" : whole.substr(hash + 1);
  const bool pointer = fragment.empty() || fragment.front() == '/';
  const auto found = ids_.find(pointer ? address : address + "#" + fragment);
  if (found == ids_.end()) {
    fail(schema, "\"$ref\": " + reference.substr(0, 200) + " is not in this document.");
    return nullptr;
  }
  const Node* at = found->second;
  for (std::size_t i = 0; pointer && i < fragment.size() && at;) {
    const std::size_t end = std::min(fragment.find('/', i + 1), fragment.size());
    std::string step;
    for (std::size_t k = i + 1; k < end; ++k) {
      const bool escape =
          fragment[k] == '~' && k + 1 < end && (fragment[k + 1] == '0' || fragment[k + 1] == '1');
      if (escape)
        step += fragment[++k] == '0' ? '~' : '/';
      else
        step += fragment[k];
    }
    i = end;
    if (at->is(Node::Kind::kArray)) {
      const bool index = !step.empty() && step.size() < 8 &&
                         step.find_first_not_of("0123456789") == std::string::npos;
      const std::size_t n = index ? std::stoul(step) : at->items.size();
      at = n < at->items.size() ? at->items[n] : nullptr;
    } else {
      at = at->find(step);
    }
  }
  if (!at) fail(schema, "\"$ref\": " + reference.substr(0, 200) + " is not in this document.");
  return at;
}

}  // namespace troupe
