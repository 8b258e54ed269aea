// Whether a value that a schema names (enum, const) satisfies what stands beside it.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

using Kind = JsonNode::Kind;
constexpr int kFitsDepthMax = 100;

unsigned type_of(const JsonNode& value) {
  switch (value.kind) {
    case Kind::kNull:
      return 1;
    case Kind::kBoolean:
      return 2;
    case Kind::kNumber:
      return Decimal::parse(value.text).is_integer() ? 4 : 8;
    case Kind::kString:
      return 16;
    case Kind::kArray:
      return 32;
    case Kind::kObject:
      break;
  }
  return 64;
}

/// How many nodes it has.
std::size_t weight(const JsonNode& value) {
  std::size_t nodes = 1;
  for (const JsonNode* item : value.items) nodes += weight(*item);
  return nodes;
}

/// Whether a number is a whole multiple of another; nothing if that is hard to say.
std::optional<bool> is_multiple(const Decimal& value, const Decimal& step) {
  const std::string units = step.whole() + step.fraction();
  if (units.size() > 15) return std::nullopt;
  if (value.fraction().size() > step.fraction().size()) return false;
  // Both in units of the step's last place.
  std::string digits = value.whole() + value.fraction();
  digits.append(step.fraction().size() - value.fraction().size(), '0');
  const unsigned long long divisor = std::stoull(units);
  unsigned long long rest = 0;
  for (const char digit : digits) rest = (rest * 10 + static_cast<unsigned>(digit - '0')) % divisor;
  return rest == 0;
}

}  // namespace

JsonSchema::Answer JsonSchema::fits(const Node& value, const Node& schema, int depth) {
  if (depth > kFitsDepthMax) return Answer::kUnknown;
  const Flat flat = flatten({&schema});
  if (failed() || flat.never) return Answer::kNo;
  Answer out = Answer::kYes;
  const auto join = [&out](Answer part) {
    if (out != Answer::kNo && part != Answer::kYes) out = part;
  };
  for (const Node* plain : flat.plain) join(fits_plain(value, *plain, depth + 1));
  for (const Node* group : flat.groups) {
    if (out == Answer::kNo) break;
    std::size_t yes = 0, unknown = 0;
    for (const Node* branch : group->items.front()->items) {
      const Answer part = fits(value, *branch, depth + 1);
      yes += part == Answer::kYes;
      unknown += part == Answer::kUnknown;
    }
    if (group->keys.front() == "anyOf")
      join(yes > 0 ? Answer::kYes : unknown > 0 ? Answer::kUnknown : Answer::kNo);
    else if (yes > 1 || (yes == 0 && unknown == 0))
      join(Answer::kNo);
    else if (unknown > 0)
      join(Answer::kUnknown);
  }
  return out;
}

JsonSchema::Answer JsonSchema::fits_plain(const Node& value, const Node& plain, int depth) {
  const auto yes_if = [](bool yes) { return yes ? Answer::kYes : Answer::kNo; };
  if ((type_of(value) & type_mask(plain)) == 0) return Answer::kNo;
  constexpr std::size_t kNodesOfStep = 8;
  const auto is_in = [&](const Node& list) {
    const auto& items = list.items;
    if (value.parent == &list) return true;
    if (!work(list, items.size() / 1024)) return false;
    if (std::find(items.begin(), items.end(), &value) != items.end()) return true;
    return work(list, items.size() * (1 + weight(value) / kNodesOfStep)) &&
           std::any_of(items.begin(), items.end(),
                       [&](const Node* one) { return same_value(value, *one); });
  };
  if (const Node* list = plain.find("enum"); list && !is_in(*list)) return Answer::kNo;
  if (const Node* list = plain.find(schema_keyword::kNotValues); list && is_in(*list))
    return Answer::kNo;
  if (const Node* only = plain.find("const"); only && !same_value(value, *only)) return Answer::kNo;
  switch (value.kind) {
    case Kind::kNumber: {
      const Decimal number = Decimal::parse(value.text);
      if (!number_range({&plain}).has(number)) return Answer::kNo;
      const Node* step = plain.find("multipleOf");
      if (!step) return Answer::kYes;
      const auto multiple = is_multiple(number, Decimal::parse(step->text));
      return multiple ? yes_if(*multiple) : Answer::kUnknown;
    }
    case Kind::kString:
      return fits_string(value.text, plain);
    case Kind::kArray: {
      const Range count = counts({&plain}, "minItems", "maxItems");
      if (value.items.size() < count.min || value.items.size() > count.max) return Answer::kNo;
      const Node* unique = plain.find("uniqueItems");
      Answer out = fits_contains(value, plain, depth);
      if (out == Answer::kNo) return out;
      for (std::size_t i = 0; i < value.items.size() && !failed(); ++i) {
        const bool differs = unique && unique->boolean && work(plain, i);
        for (std::size_t j = 0; differs && j < i; ++j)
          if (same_value(*value.items[i], *value.items[j])) return Answer::kNo;
        for (const Node* schema : item_schemas({&plain}, i)) {
          const Answer part = fits(*value.items[i], *schema, depth + 1);
          if (part == Answer::kNo) return part;
          if (part == Answer::kUnknown) out = part;
        }
      }
      return out;
    }
    case Kind::kObject:
      return fits_members(value, plain, depth);
    case Kind::kNull:
    case Kind::kBoolean:
      break;
  }
  return Answer::kYes;
}

JsonSchema::Answer JsonSchema::fits_contains(const Node& value, const Node& plain, int depth) {
  const Node* wanted = plain.find("contains");
  if (!wanted) return Answer::kYes;
  Range count = counts({&plain}, "minContains", "maxContains");
  if (!plain.find("minContains")) count.min = 1;
  std::size_t yes = 0, unknown = 0;
  for (const Node* item : value.items) {
    const Answer part = fits(*item, *wanted, depth + 1);
    yes += part == Answer::kYes;
    unknown += part == Answer::kUnknown;
  }
  if (yes + unknown < count.min || yes > count.max) return Answer::kNo;
  return yes >= count.min && yes + unknown <= count.max ? Answer::kYes : Answer::kUnknown;
}

JsonSchema::Answer JsonSchema::fits_string(const std::string& text, const Node& plain) {
  Range length = counts({&plain}, "minLength", "maxLength");
  const std::size_t size = code_points(text).size();
  if (size < length.min || size > length.max) return Answer::kNo;
  Answer out = Answer::kYes;
  const auto search = [&](std::string_view keyword, bool wanted) {
    const Node* expression = plain.find(keyword);
    if (!expression || out == Answer::kNo) return;
    if (!work(plain, 1 + text.size() / kBytesOfStep)) return;
    const auto of = [&](Reading reading) {
      return automaton_of(plain, expression->text, Match::kSearch, reading);
    };
    const auto* surely = of(Reading::kSurely);
    const auto* maybe = surely ? of(Reading::kMaybe) : nullptr;
    if (!surely || !maybe || surely->accepts(text) != maybe->accepts(text))
      out = Answer::kUnknown;
    else if (surely->accepts(text) != wanted)
      out = Answer::kNo;
  };
  search("pattern", true);
  search(schema_keyword::kNotPattern, false);
  const Node* format = out != Answer::kNo ? plain.find("format") : nullptr;
  if (!format || !work(plain, 1 + text.size() / kBytesOfStep)) return out;
  // Most who read schemas do not look at formats: what breaks one is neither right nor wrong.
  if (const auto whole = format_pattern(format->text, length.min, length.max)) {
    const auto* states = automaton_of(plain, *whole, Match::kWhole, Reading::kSurely);
    if (!states || !states->accepts(text)) out = Answer::kUnknown;
  }
  return out;
}

JsonSchema::Answer JsonSchema::fits_members(const Node& value, const Node& plain, int depth) {
  const Range count = counts({&plain}, "minProperties", "maxProperties");
  if (value.keys.size() < count.min || value.keys.size() > count.max) return Answer::kNo;
  for (const std::string& name : required_names({&plain}))
    if (!value.find(name)) return Answer::kNo;
  Answer out = Answer::kYes;
  for (std::size_t i = 0; i < value.keys.size() && !failed(); ++i) {
    const auto schemas = member_schemas({&plain}, value.keys[i]);
    if (!schemas) return Answer::kUnknown;
    Answer part = name_fits(value.keys[i], name_schemas({&plain}));
    for (const Node* schema : *schemas) {
      if (part == Answer::kNo) return part;
      if (part == Answer::kUnknown) out = part;
      part = fits(*value.items[i], *schema, depth + 1);
    }
    if (part == Answer::kNo) return part;
    if (part == Answer::kUnknown) out = part;
  }
  return out;
}

JsonSchema::Answer JsonSchema::name_fits(const std::string& name, const Set& schemas) {
  Answer out = Answer::kYes;
  if (schemas.empty()) return out;
  Node& text = make(Kind::kString, *schemas.front());
  text.text = name;
  for (const Node* schema : schemas) {
    const Answer part = fits(text, *schema, 0);
    if (part == Answer::kNo) return part;
    if (part == Answer::kUnknown) out = part;
  }
  return out;
}

}  // namespace troupe
