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
    if (out.min > kCountsMax) {
      unsupported(*schema, min_key, "above 1,000,000,000");
      return {};
    }
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

JsonSchema::Contained JsonSchema::contained(const Set& plain) {
  constexpr std::size_t kWantedMax = 1'000;
  Contained out;
  for (const Node* schema : plain) {
    const Node* wanted = schema->find("contains");
    if (!wanted) continue;
    const bool counted = schema->find("maxContains");
    Range count = counts({schema}, "minContains", "maxContains");
    if (!schema->find("minContains")) count.min = 1;
    if (count.min > kWantedMax) unsupported(*schema, "minContains", "above 1,000");
    if (counted && !out.others.empty())
      unsupported(*schema, "maxContains", "beside another one");
    if (failed()) break;
    if (count.empty()) {
      // No number of items will do.
      out.wanted.push_back(&make(Kind::kBoolean, *schema));
      continue;
    }
    out.wanted.insert(out.wanted.end(), count.min, wanted);
    if (counted) out.others.push_back(&made_not(*wanted));
  }
  // Where one is counted, those that are there for another must not be meant by it, either.
  if (!out.others.empty() && !out.alike())
    unsupported(*plain.front(), "maxContains", "beside another \"contains\"");
  return out;
}

/// The first places whose items can be what "contains" means, each for one; nothing: too few can.
/// `listed` of them have schemas of their own, all behind these one and the same.
std::optional<std::map<std::size_t, const JsonSchema::Node*>> JsonSchema::places_of(
    const Contained& contained, const Set& plain, std::size_t listed, std::size_t max) {
  std::map<std::size_t, const Node*> out;
  const Node* before = nullptr;
  std::size_t place = 0;
  for (const Node* wanted : contained.wanted) {
    place = wanted == before ? place + 1 : 0;
    before = wanted;
    for (;; ++place) {
      if (place >= max) return std::nullopt;
      if (!work(*wanted, 1)) return std::nullopt;
      if (out.contains(place)) continue;
      if (!work(*wanted, plain.size())) return std::nullopt;
      Set schemas = item_schemas(plain, place);
      schemas.push_back(wanted);
      const bool fits = value(schemas).has_value();
      if (failed() || (!fits && place >= listed)) return std::nullopt;
      if (fits) break;
    }
    out.emplace(place, wanted);
  }
  return out;
}

JsonSchema::Text JsonSchema::arrays(const Flat& flat) {
  Range count = counts(flat.plain, "minItems", "maxItems");
  std::size_t prefix = 0;
  bool unique = false;
  const Contained inside = contained(flat.plain);
  for (const Node* schema : flat.plain) {
    if (const Node* first = prefix_of(*schema)) prefix = std::max(prefix, first->items.size());
    const Node* flag = schema->find("uniqueItems");
    unique = unique || (flag && flag->boolean);
    const Node* values = schema->find(schema_keyword::kNotValues);
    if (values && std::any_of(values->items.begin(), values->items.end(),
                              [](const Node* value) { return value->is(Kind::kArray); }))
      fail(*schema, "to exclude single arrays is not supported.");
  }
  if (unique && !inside.empty() && count.max > 1)
    unsupported(*flat.plain.front(), "contains", "beside \"uniqueItems\"");
  if (failed()) return "";
  if (unique && count.max > 1) return unique_items(flat, count, prefix > 0);
  const auto wanted = places_of(inside, flat.plain, prefix, count.max);
  // Another choice of places might do.
  const bool chosen = !inside.alike() || (!inside.others.empty() && prefix > 0);
  const auto none = [&]() -> Text {
    if (chosen) unsupported(*flat.plain.front(), "contains", "beside what the items must be");
    return std::nullopt;
  };
  if (failed()) return "";
  if (!wanted) return none();
  const std::size_t first_free = wanted->empty() ? 0 : wanted->rbegin()->first + 1;
  count.min = std::max(count.min, first_free);
  prefix = std::max(prefix, first_free);
  std::vector<std::string> items;
  for (std::size_t i = 0; i <= prefix && i < count.max; ++i) {
    Set schemas = item_schemas(flat.plain, i);
    if (const auto here = wanted->find(i); here != wanted->end())
      schemas.push_back(here->second);
    else
      schemas.insert(schemas.end(), inside.others.begin(), inside.others.end());
    const Text item = value(schemas);
    if (failed()) return "";
    if (!item)
      count.max = std::min(count.max, i);
    else
      items.push_back(*item);
  }
  if (count.empty()) return none();
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
