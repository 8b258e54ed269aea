// Arrays: items by place, how many there may be, and that they differ.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

using Kind = JsonNode::Kind;

/// More than that no answer holds.
constexpr std::size_t kCountsMax = 1'000'000'000;

/// The schemas for the first items.
const JsonNode* prefix_of(const JsonNode& plain) {
  if (const JsonNode* prefix = plain.find("prefixItems")) return prefix;
  const JsonNode* items = plain.find("items");
  return items && items->is(Kind::kArray) ? items : nullptr;
}

}  // namespace

JsonSchema::Range JsonSchema::counts(const Set& plain, const char* min_key, const char* max_key) {
  Range out;
  const auto number = [](const Node& node) {
    const std::string digits = Decimal::parse(node.text).whole();
    return digits.size() > 15 ? Regex::kUnbounded - 1
                              : static_cast<std::size_t>(std::stoull(digits));
  };
  for (const Node* schema : plain) {
    if (const Node* bound = schema->find(min_key)) out.min = std::max(out.min, number(*bound));
    // No answer is as long as that: clients write their language's largest number for "any".
    if (const Node* bound = schema->find(max_key); bound && number(*bound) <= kCountsMax)
      out.max = std::min(out.max, number(*bound));
  }
  return out;
}

JsonSchema::Set JsonSchema::item_schemas(const Set& plain, std::size_t index) {
  Set out;
  for (const Node* schema : plain) {
    const Node* prefix = prefix_of(*schema);
    const Node* items = schema->find("items");
    if (items && items->is(Kind::kArray)) items = schema->find("additionalItems");
    if (prefix && index < prefix->items.size())
      out.push_back(prefix->items[index]);
    else if (items)
      out.push_back(items);
  }
  return out;
}

/// What "contains" asks for: items that it means come first. The last set is for all items behind
/// these, which must not be meant where they are counted.
std::vector<JsonSchema::Set> JsonSchema::leading_items(const Set& plain) {
  constexpr std::size_t kLeadMax = 1'000;
  std::vector<Set> out;
  Set behind;
  std::size_t groups = 0;
  for (const Node* schema : plain) {
    const Node* wanted = schema->find("contains");
    if (!wanted) continue;
    const bool counted = schema->find("maxContains");
    Range count = counts({schema}, "minContains", "maxContains");
    if (!schema->find("minContains")) count.min = 1;
    if (count.min > kLeadMax) unsupported(*schema, "minContains", "above 1,000");
    if (counted && ++groups > 1) unsupported(*schema, "maxContains", "beside another one");
    if (failed()) break;
    if (count.empty()) {
      // No number of items will do.
      out.push_back({&document_.make(Kind::kBoolean, *schema)});
      continue;
    }
    out.insert(out.end(), count.min, {wanted});
    if (counted) behind.push_back(&made_not(*wanted));
  }
  // Where one is counted, those that lead for another must not be meant by it, either.
  if (groups > 0 &&
      std::any_of(out.begin(), out.end(), [&](const Set& s) { return s != out.front(); }))
    unsupported(*plain.front(), "maxContains", "beside another \"contains\"");
  out.push_back(std::move(behind));
  return out;
}

JsonSchema::Text JsonSchema::arrays(const Flat& flat) {
  Range count = counts(flat.plain, "minItems", "maxItems");
  std::size_t prefix = 0;
  bool unique = false;
  std::vector<Set> lead = leading_items(flat.plain);
  for (const Node* schema : flat.plain) {
    if (const Node* first = prefix_of(*schema)) prefix = std::max(prefix, first->items.size());
    const Node* flag = schema->find("uniqueItems");
    unique = unique || (flag && flag->boolean);
    const Node* values = schema->find(schema_keyword::kNotValues);
    if (values && std::any_of(values->items.begin(), values->items.end(),
                              [](const Node* value) { return value->is(Kind::kArray); }))
      fail(*schema, "to exclude single arrays is not supported.");
  }
  const bool leads = lead.size() > 1 || !lead.back().empty();
  if (unique && leads && count.max > 1)
    unsupported(*flat.plain.front(), "contains", "beside \"uniqueItems\"");
  if (failed()) return "";
  if (unique && count.max > 1) return unique_items(flat, count, prefix > 0);
  count.min = std::max(count.min, lead.size() - 1);
  prefix = std::max(prefix, lead.size() - 1);
  std::vector<std::string> items;
  for (std::size_t i = 0; i <= prefix && i < count.max; ++i) {
    Set schemas = item_schemas(flat.plain, i);
    const Set& more = lead[std::min(i, lead.size() - 1)];
    schemas.insert(schemas.end(), more.begin(), more.end());
    const Text item = value(schemas);
    if (failed()) return "";
    if (!item)
      count.max = std::min(count.max, i);
    else
      items.push_back(*item);
  }
  if (count.empty()) return std::nullopt;
  const std::string space = writer_.json_space();
  const std::string comma = space + " \",\" " + space + " ";
  // From the last item: what follows the first i.
  std::string rest = space + " \"]\"";
  if (items.size() > prefix) {
    const std::size_t least = std::max<std::size_t>(prefix, 1);
    const std::size_t min = count.min > least ? count.min - least : 0;
    const std::string max = count.max == Regex::kUnbounded ? "" : std::to_string(count.max - least);
    if (max != "0")
      rest = "(" + comma + items.back() + "){" + std::to_string(min) + "," + max + "} " + rest;
    if (prefix > 0) items.pop_back();
  }
  for (std::size_t i = items.size(); i-- > 0;) {
    const bool may_end = i >= count.min;
    if (i == 0)
      return "\"[\" " + space + " (" + (may_end ? "\"]\" | " : "") + items[0] + " " + rest + ")";
    rest = writer_.rule("items", space + " (" + (may_end ? "\"]\" | " : "") + "\",\" " + space +
                                     " " + items[i] + " " + rest + ")");
  }
  return "\"[\" " + space + " \"]\"";
}

}  // namespace troupe
