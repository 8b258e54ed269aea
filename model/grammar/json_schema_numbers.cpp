// Numbers: bounds and multiples.

#include <algorithm>
#include <numeric>

#include "model/grammar/json_schema.h"

namespace troupe {

namespace {

/// A bound that readers take for a double, of more digits than these hold: a little further inside.
Decimal inside_of_double(const Decimal& bound, const std::string& text, bool below) {
  constexpr std::size_t kExactDigits = 15;
  const std::string& whole = bound.whole();
  const bool exact = text.find_first_of(".eE") == std::string::npos || whole.size() <= kExactDigits;
  if (exact) return bound;
  const bool smaller = below != bound.negative();
  const long long digits = std::stoll(whole.substr(0, kExactDigits)) + (smaller ? -1 : 2);
  return Decimal::parse((bound.negative() ? "-" : "") + std::to_string(digits) +
                        std::string(whole.size() - kExactDigits, '0'));
}

/// Whether units / 10^places is so many halves, quarters, ...: 0.5, 0.75.
bool is_double(std::size_t units, std::size_t places) {
  for (; places > 0; --places) {
    if (units % 5 != 0) return false;
    units /= 5;
  }
  return true;
}

}  // namespace

/// `written`: for numbers that are to be in it to all readers.
NumberRange JsonSchema::number_range(const Set& plain, bool written) {
  NumberRange out;
  for (const Node* schema : plain) {
    const auto bound = [&](const char* key, bool below) -> std::optional<Decimal> {
      const Node* node = schema->find(key);
      if (!node) return std::nullopt;
      const Decimal value = Decimal::parse(node->text);
      return written ? inside_of_double(value, node->text, below) : value;
    };
    if (const auto value = bound("minimum", false)) out.at_least(*value, false);
    if (const auto value = bound("maximum", true)) out.at_most(*value, false);
    if (const auto value = bound("exclusiveMinimum", false)) out.at_least(*value, true);
    if (const auto value = bound("exclusiveMaximum", true)) out.at_most(*value, true);
  }
  return out;
}

/// The texts that are of both.
JsonSchema::Text JsonSchema::both(const Regex& a, const Regex& b, const Node& place) {
  auto states = TextAutomaton::make(a, Match::kWhole, Reading::kSurely);
  const auto other = TextAutomaton::make(b, Match::kWhole, Reading::kSurely);
  if (!charge(place, states) || !charge(place, other)) return "";
  if (states && other) states = states->intersect(*other);
  if (!charge(place, states)) return "";
  if (!states || !other) {
    fail(place, "numbers within these bounds that are no integers are not supported.");
    return "";
  }
  return written(*states, Spelling::kPlain, place);
}

/// What the steps ask for: multiples of a whole number of units in the last place.
std::optional<JsonSchema::Steps> JsonSchema::steps_of(const Set& plain) {
  constexpr std::size_t kPlacesMax = 9;
  constexpr std::size_t kStatesMax = TextAutomaton::kStatesMax;
  Steps out;
  for (const Node* schema : plain) {
    const Node* step = schema->find("multipleOf");
    if (!step) continue;
    const Decimal value = Decimal::parse(step->text);
    const std::string& places = value.fraction();
    if (step->text.find_first_of(".eE") != std::string::npos) out.divides_doubles = true;
    const std::string digits = value.whole() + places;
    const std::size_t zeros = digits.find_first_not_of('0', 1);
    if (places.empty()) out.whole = true;
    if (places.empty() && digits.front() == '1' && zeros == std::string::npos) {
      out.zeros = std::max(out.zeros, digits.size() - 1);
      continue;
    }
    const std::size_t units = digits.size() <= 15 ? std::stoull(digits) : kStatesMax;
    if (places.size() <= kPlacesMax && !is_double(units, places.size())) {
      // Of those that divide doubles Python's jsonschema says no to 0.3 by 0.1, others do not.
      unsupported(*schema, "multipleOf", "with a step that no double is, as 0.1");
      return std::nullopt;
    }
    if (places.size() > kPlacesMax || units * (places.size() + 2) > kStatesMax) {
      unsupported(*schema, "multipleOf", "with a step of so many digits");
      return std::nullopt;
    }
    out.all.insert({units, places.size()});
  }
  return out;
}

/// The ranges that are left of one without single numbers.
std::vector<NumberRange> JsonSchema::ranges(const Set& plain) {
  std::vector<NumberRange> out{number_range(plain, true)};
  for (const Node* schema : plain) {
    const Node* values = schema->find(schema_keyword::kNotValues);
    if (!values) continue;
    for (const Node* value : values->items) {
      if (!value->is(Node::Kind::kNumber) || !work(*values, out.size())) continue;
      const Decimal number = Decimal::parse(value->text);
      std::vector<NumberRange> left;
      for (const NumberRange& range : out) {
        NumberRange below = range, above = range;
        below.at_most(number, true);
        above.at_least(number, true);
        if (!range.has(number)) left.push_back(range);
        if (range.has(number)) left.insert(left.end(), {below, above});
      }
      out = std::move(left);
    }
  }
  return out;
}

/// An expression whose groups are not too deep: what is, has rules of its own.
std::string JsonSchema::number_expression(const Regex& regex) {
  constexpr int kDepthMax = 40;
  if (regex.depth() <= kDepthMax) return regex.expression(Spelling::kPlain);
  if (regex.kind == Regex::Kind::kRepeat) {
    const std::string part = writer_.rule("digits", number_expression(regex.parts.front()));
    return "(" + part + ")" + regex.counts();
  }
  std::string out;
  for (const Regex& part : regex.parts) {
    const std::string text = number_expression(part);
    const bool or_else = regex.kind == Regex::Kind::kAlternate;
    out += out.empty() ? "" : or_else ? " | " : " ";
    out += or_else || part.depth() <= 1 ? text : writer_.rule("digits", text);
  }
  return out;
}

JsonSchema::Text JsonSchema::numbers(const Flat& flat) {
  constexpr std::size_t kSmallStepMax = 180;  // times 20 digits, which numbers have
  const Node& place = *flat.plain.front();
  const bool integers = (flat.types & kInteger) != 0;
  bool fractions = (flat.types & kFraction) != 0;
  const auto steps = steps_of(flat.plain);
  const auto pieces = ranges(flat.plain);
  if (failed()) return "";
  // Multiples of a whole number are whole.
  if (steps->whole) fractions = false;
  std::string out;
  for (NumberRange range : pieces) {
    const auto within = [&range](long long most) {
      NumberRange small = range;
      small.at_least(Decimal(-most), false);
      small.at_most(Decimal(most), false);
      if (*small.min <= *small.max) range = small;
    };
    if (steps->divides_doubles) within(999'999'999'999'999);
    // So few digits that a double has them all, and for large steps, that it takes few states.
    if (!steps->all.empty() && fractions) within(999'999'999);
    if (!steps->all.empty() && steps->all.rbegin()->first > kSmallStepMax) within(99'999);
    const Text text = numbers_within(range, *steps, integers, fractions, place);
    if (failed()) return "";
    if (text) out += (out.empty() ? "" : " | ") + *text;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

JsonSchema::Text JsonSchema::numbers_within(const NumberRange& range, const Steps& steps,
                                            bool integers, bool fractions, const Node& place) {
  if (range.min && range.max && *range.max < *range.min) return std::nullopt;
  const bool stepped = !steps.all.empty() || steps.zeros > 0;
  if (fractions && !integers && !stepped) {
    if (!range.min && !range.max) return fraction_text().expression(Spelling::kPlain);
    const auto bounded = number_text(range);
    if (!bounded) return std::nullopt;
    return both(*bounded, fraction_text(), place);
  }
  if (!integers && !fractions) return std::nullopt;
  if (fractions && !stepped && !range.min && !range.max) return writer_.json_number();
  // Each digit of a bound is a choice, within those of the digits before it.
  constexpr std::size_t kDigitPairsOfStep = 8;
  std::size_t digits = 0;
  for (const auto* bound : {&range.min, &range.max})
    if (*bound) digits += (*bound)->whole().size() + (*bound)->fraction().size();
  if (!work(place, digits * digits / kDigitPairsOfStep)) return "";
  const auto text = fractions ? number_text(range) : integer_text(range);
  if (!text) return std::nullopt;
  if (!stepped) return number_expression(*text);
  auto states = TextAutomaton::make(*text, Match::kWhole, Reading::kSurely);
  if (!charge(place, states)) return "";
  if (states && !integers) {
    const auto other = TextAutomaton::make(fraction_text(), Match::kWhole, Reading::kSurely);
    if (other) states = states->intersect(*other);
    if (!charge(place, states)) return "";
  }
  if (states && steps.zeros > 0) {
    const auto end = Regex::parse("-?(?:0|[0-9]*0{" + std::to_string(steps.zeros) + "})");
    const auto other = TextAutomaton::make(*end, Match::kWhole, Reading::kSurely);
    if (!charge(place, other)) return "";
    if (other) states = states->intersect(*other);
    if (!charge(place, states)) return "";
  }
  for (auto [step, places] : steps.all) {
    // Of whole numbers those that are multiples of what the places leave of the step.
    for (; !fractions && places > 0; --places) step /= std::gcd(step, std::size_t{10});
    if (states) states = states->intersect(TextAutomaton::multiples(step, places));
    if (!charge(place, states)) return "";
  }
  if (!states) {
    unsupported(place, "multipleOf", "as large as that within these bounds");
    return "";
  }
  return written(*states, Spelling::kPlain, place);
}

}  // namespace troupe
