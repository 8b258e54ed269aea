// Numbers: bounds and multiples.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {

NumberRange JsonSchema::number_range(const Set& plain) {
  NumberRange out;
  for (const Node* schema : plain) {
    const auto bound = [&](const char* key) {
      const Node* node = schema->find(key);
      return node ? std::optional<Decimal>(Decimal::parse(node->text)) : std::nullopt;
    };
    if (const auto value = bound("minimum")) out.at_least(*value, false);
    if (const auto value = bound("maximum")) out.at_most(*value, false);
    if (const auto value = bound("exclusiveMinimum")) out.at_least(*value, true);
    if (const auto value = bound("exclusiveMaximum")) out.at_most(*value, true);
  }
  return out;
}

/// The texts that are of both.
JsonSchema::Text JsonSchema::both(const Regex& a, const Regex& b, const Node& place) {
  using Match = TextAutomaton::Match;
  auto states = TextAutomaton::make(a, Match::kWhole, TextAutomaton::Reading::kSurely);
  const auto other = TextAutomaton::make(b, Match::kWhole, TextAutomaton::Reading::kSurely);
  if (states && other) states = states->intersect(*other);
  if (!states || !other) {
    fail(place, "numbers within these bounds that are no integers are not supported.");
    return "";
  }
  if (states->empty()) return std::nullopt;
  return states->write(writer_, Spelling::kPlain);
}

JsonSchema::Text JsonSchema::numbers(const Flat& flat) {
  const NumberRange range = number_range(flat.plain);
  const Node& place = *flat.plain.front();
  const bool integers = (flat.types & kInteger) != 0;
  bool fractions = (flat.types & kFraction) != 0;
  std::set<std::size_t> steps;
  for (const Node* schema : flat.plain) {
    if (const Node* values = schema->find(schema_keyword::kNotValues)) {
      if (std::any_of(values->items.begin(), values->items.end(),
                      [](const Node* value) { return value->is(Node::Kind::kNumber); }))
        fail(*schema, "to exclude single numbers is not supported.");
    }
    const Node* step = schema->find("multipleOf");
    if (!step) continue;
    const Decimal value = Decimal::parse(step->text);
    if (!value.is_integer() || value.whole().size() > 3)
      unsupported(*schema, "multipleOf", "unless it is a whole number below 1,000");
    else
      steps.insert(std::stoul(value.whole()));
    // Multiples of a whole number are whole.
    fractions = false;
  }
  if (failed()) return "";
  if (fractions && !integers) {
    if (!range.min && !range.max) return fraction_text().expression(Spelling::kPlain);
    const auto bounded = number_text(range);
    if (!bounded) return std::nullopt;
    return both(*bounded, fraction_text(), place);
  }
  if (!integers) return std::nullopt;
  if (fractions && !range.min && !range.max) return writer_.json_number();
  const auto text = fractions ? number_text(range) : integer_text(range);
  steps.erase(1);
  if (!text || steps.empty()) return text ? Text(text->expression(Spelling::kPlain)) : std::nullopt;
  auto states =
      TextAutomaton::make(*text, TextAutomaton::Match::kWhole, TextAutomaton::Reading::kSurely);
  for (const std::size_t step : steps)
    if (states) states = states->intersect(TextAutomaton::multiples(step));
  if (!states) {
    unsupported(place, "multipleOf", "as large as that within these bounds");
    return "";
  }
  if (states->empty()) return std::nullopt;
  return states->write(writer_, Spelling::kPlain);
}

}  // namespace troupe
