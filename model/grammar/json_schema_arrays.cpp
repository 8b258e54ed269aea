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

JsonSchema::Text JsonSchema::arrays(const Flat& flat) {
  Range count = counts(flat.plain, "minItems", "maxItems");
  std::size_t prefix = 0;
  bool unique = false;
  for (const Node* schema : flat.plain) {
    if (const Node* first = prefix_of(*schema)) prefix = std::max(prefix, first->items.size());
    const Node* flag = schema->find("uniqueItems");
    unique = unique || (flag && flag->boolean);
    const Node* values = schema->find(schema_keyword::kNotValues);
    if (values && std::any_of(values->items.begin(), values->items.end(),
                              [](const Node* value) { return value->is(Kind::kArray); }))
      fail(*schema, "to exclude single arrays is not supported.");
  }
  if (failed()) return "";
  if (unique && count.max > 1) return unique_items(flat, count);
  std::vector<std::string> items;
  for (std::size_t i = 0; i <= prefix && i < count.max; ++i) {
    const Text item = value(item_schemas(flat.plain, i));
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

/// Arrays whose items differ: of values that can be listed, in any order if they are few, else in
/// the order of the list.
JsonSchema::Text JsonSchema::unique_items(const Flat& flat, const Range& count) {
  constexpr std::size_t kAnyOrderMax = 6;
  const Set schemas = item_schemas(flat.plain, 0);
  const Flat item = flatten(schemas);
  if (failed()) return "";
  const Node& place = *flat.plain.front();
  Set values;
  for (const Node* plain : item.plain) {
    const Node* list = plain->find("enum");
    if (!list) continue;
    for (const Node* one : list->items) {
      const bool known = std::any_of(values.begin(), values.end(),
                                     [&](const Node* other) { return same_value(*one, *other); });
      Answer answer = Answer::kYes;
      for (const Node* schema : schemas)
        if (answer == Answer::kYes) answer = fits(*one, *schema, 0);
      if (!known && answer == Answer::kYes) values.push_back(one);
      if (answer == Answer::kUnknown) values.clear();
      if (answer == Answer::kUnknown) break;
    }
    break;
  }
  const bool prefixed = std::any_of(flat.plain.begin(), flat.plain.end(),
                                    [](const Node* plain) { return prefix_of(*plain); });
  if (values.empty() || prefixed || failed()) {
    unsupported(place, "uniqueItems", "unless the items are listed by \"enum\"");
    return "";
  }
  if (values.size() > kAnyOrderMax) {
    Members list;
    for (const Node* one : values)
      list.known.push_back({"", writer_.rule("item", constant(*one)), false});
    list.count = count;
    list.counted = true;
    return member_chain(list, place, brackets('[', ']'));
  }
  // A rule for each set of values that are there already.
  const std::string space = writer_.json_space();
  std::vector<std::string> texts;
  for (const Node* one : values) texts.push_back(writer_.rule("item", constant(*one)));
  std::vector<std::string> rests(std::size_t{1} << values.size());
  for (std::size_t used = rests.size(); used-- > 0;) {
    const auto size = static_cast<std::size_t>(__builtin_popcountll(used));
    std::string more;
    for (std::size_t i = 0; i < values.size() && size < count.max; ++i) {
      if (used >> i & 1 || rests[used | std::size_t{1} << i].empty()) continue;
      more += (more.empty() ? "" : " | ") + texts[i] + " " + rests[used | std::size_t{1} << i];
    }
    const std::string end = size >= count.min ? "\"]\"" : "";
    if (used == 0) {
      if (more.empty() && end.empty()) return std::nullopt;
      return "\"[\" " + space + " (" + end + (end.empty() || more.empty() ? "" : " | ") + more +
             ")";
    }
    if (!more.empty()) more = "\",\" " + space + " (" + more + ")";
    if (more.empty() && end.empty()) continue;
    rests[used] = writer_.rule(
        "items", space + " (" + end + (end.empty() || more.empty() ? "" : " | ") + more + ")");
  }
  return std::nullopt;
}

}  // namespace troupe
