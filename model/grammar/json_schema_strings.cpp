// Strings: length, pattern, format, and what they must not be.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

std::string counted(const std::string& item, std::size_t min, std::size_t max) {
  if (min == 0 && max == Regex::kUnbounded) return item + "*";
  const std::string last = max == Regex::kUnbounded ? "" : std::to_string(max);
  return item + "{" + std::to_string(min) + "," + last + "}";
}

}  // namespace

/// The expression of a "pattern", read once.
const Regex* JsonSchema::pattern(const Node& schema, const std::string& text) {
  const auto known = patterns_.find(text);
  if (known != patterns_.end()) return &known->second;
  auto parsed = Regex::parse(text);
  if (!parsed) {
    fail(schema, "\"pattern\": " + parsed.error().message);
    return nullptr;
  }
  return &patterns_.emplace(text, std::move(*parsed)).first->second;
}

/// What one expression matches, made once; null if it would be too large.
const TextAutomaton* JsonSchema::automaton_of(const Node& schema, const std::string& expression,
                                              Match match, Reading reading) {
  const auto key = std::tuple(expression, match, reading);
  auto known = automata_.find(key);
  if (known == automata_.end()) {
    const Regex* regex = pattern(schema, expression);
    if (!regex) return nullptr;
    known = automata_.emplace(key, TextAutomaton::make(*regex, match, reading)).first;
    if (!charge(schema, known->second)) return nullptr;
  }
  return known->second ? &*known->second : nullptr;
}

JsonSchema::StringRules JsonSchema::string_rules(const Set& plain) {
  StringRules out;
  out.length = counts(plain, "minLength", "maxLength");
  std::set<std::string_view> seen;
  for (const Node* schema : plain) {
    if (const Node* text = schema->find("pattern"); text && seen.insert(text->text).second) {
      if (const Regex* regex = pattern(*schema, text->text)) out.searches.push_back(*regex);
    }
    if (const Node* text = schema->find(schema_keyword::kNotPattern)) {
      if (const Regex* regex = pattern(*schema, text->text)) out.not_searches.push_back(*regex);
    }
    if (const Node* values = schema->find(schema_keyword::kNotValues)) {
      for (const Node* value : values->items)
        if (value->is(Node::Kind::kString)) out.not_texts.push_back(value->text);
    }
    const Node* format = schema->find("format");
    if (!format || !seen.insert(format->text).second) continue;
    if (const auto text = format_pattern(format->text, out.length.min, out.length.max)) {
      if (const Regex* regex = pattern(*schema, *text)) out.wholes.push_back(*regex);
    }
  }
  return out;
}

/// All that is asked of a string, as one automaton. Nothing and an error if it is too large.
std::optional<TextAutomaton> JsonSchema::automaton(const StringRules& rules, const Node& place) {
  const Reading positive = rules.maybe ? Reading::kMaybe : Reading::kSurely;
  const Reading negative = rules.maybe ? Reading::kSurely : Reading::kMaybe;
  std::optional<TextAutomaton> out;
  const auto join = [&](Result<TextAutomaton> next, bool complement) {
    if (!charge(place, next)) return;
    if (next && complement) next = next->complement();
    if (next && out) {
      next = out->intersect(*next);
      if (!charge(place, next)) return;
    }
    if (next)
      out = std::move(*next);
    else
      fail(place, "the string's keywords together are not supported: " + next.error().message);
  };
  for (const Regex& regex : rules.searches)
    if (!failed()) join(TextAutomaton::make(regex, Match::kSearch, positive), false);
  // A format says nothing to those who do not look at it.
  if (!rules.maybe)
    for (const Regex& regex : rules.wholes)
      if (!failed()) join(TextAutomaton::make(regex, Match::kWhole, positive), false);
  for (const Regex& regex : rules.not_searches)
    if (!failed()) join(TextAutomaton::make(regex, Match::kSearch, negative), true);
  if (!rules.not_texts.empty()) join(TextAutomaton::all_but(rules.not_texts), false);
  if (rules.length.min > 0 || rules.length.max != Regex::kUnbounded)
    join(TextAutomaton::lengths(rules.length.min, rules.length.max), false);
  if (failed()) return std::nullopt;
  if (!out) out = TextAutomaton::all();
  return out;
}

JsonSchema::Text JsonSchema::written(const TextAutomaton& states, Spelling spelling,
                                     const Node& place) {
  if (states.empty()) return std::nullopt;
  if (!work(place, states.size())) return "";
  return states.write(writer_, spelling);
}

/// The characters of a string, without its quotes.
JsonSchema::Text JsonSchema::string_content(const StringRules& rules, const Node& place,
                                            Spelling spelling) {
  if (rules.length.empty()) return std::nullopt;
  const bool lengths = rules.length.min > 0 || rules.length.max != Regex::kUnbounded;
  const std::size_t expressions = rules.wholes.size() + rules.searches.size();
  if (expressions == 0 && rules.not_searches.empty() && rules.not_texts.empty())
    return counted(writer_.json_character(), rules.length.min, rules.length.max);
  if (expressions == 1 && rules.not_searches.empty() && rules.not_texts.empty()) {
    const bool search = !rules.searches.empty();
    const Regex& regex = search ? rules.searches.front() : rules.wholes.front();
    const Regex::Trimmed plain = regex.trimmed();
    const bool anchored = !search || (plain.start && plain.end);
    const auto [min, max] = plain.regex.lengths();
    const bool bounded = anchored && !plain.regex.has_anchors();
    if (!lengths || (bounded && min >= rules.length.min && max <= rules.length.max)) {
      const auto text = search ? RegexText::search(regex) : RegexText::whole(regex);
      if (!charge(place, text) || (text && !work(place, text->size()))) return "";
      if (!text) fail(place, "\"pattern\" is not supported: " + text.error().message);
      if (!text) return "";
      if (text->empty()) return std::nullopt;
      return text->write(writer_, spelling);
    }
    // Characters of one kind are counted without states.
    const Regex* repeated = &plain.regex;
    if (bounded && repeated->kind == Regex::Kind::kRepeat &&
        repeated->parts.front().kind == Regex::Kind::kSet) {
      const std::size_t low = std::max(repeated->min, rules.length.min);
      const std::size_t high = std::min(repeated->max, rules.length.max);
      if (low > high || repeated->parts.front().surely.empty()) return std::nullopt;
      return Regex::repeat(repeated->parts.front(), low, high).expression(spelling);
    }
  }
  const auto states = automaton(rules, place);
  return states ? written(*states, spelling, place) : "";
}

JsonSchema::Text JsonSchema::strings(const Flat& flat) {
  const StringRules rules = string_rules(flat.plain);
  if (failed()) return "";
  const Node& place = *flat.plain.front();
  const bool any = rules.wholes.empty() && rules.searches.empty() && rules.not_searches.empty() &&
                   rules.not_texts.empty() && rules.length.min == 0 &&
                   rules.length.max == Regex::kUnbounded;
  if (any) return writer_.json_string();
  const Text content = string_content(rules, place, Spelling::kJson);
  if (!content) return std::nullopt;
  return "\"\\\"\" (" + *content + ") \"\\\"\"";
}

}  // namespace troupe
