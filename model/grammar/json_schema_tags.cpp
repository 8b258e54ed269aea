// Members in tags: names and texts stand there without quotes, all other values as JSON.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

using Match = TextAutomaton::Match;
using Reading = TextAutomaton::Reading;

/// So much of a tag is no part of a text that is counted.
constexpr std::size_t kTagBytesCounted = 5;

/// One to kTagBytesCounted characters, such that a row of such parts never has the tag in it.
std::string part_without(std::string_view tag, std::size_t at = 0) {
  const std::string next(1, tag[at]);
  std::string out = at == 0 ? "[^" + next + "]" : "[^" + std::string(1, tag[0]) + next + "]";
  if (at + 1 < std::min(tag.size(), kTagBytesCounted))
    out += " | \"" + next + "\" (" + part_without(tag, at + 1) + ")";
  return out;
}

/// Texts that do not hold the tag.
Result<TextAutomaton> without(std::string_view tag) {
  auto found = TextAutomaton::make(Regex::text(tag), Match::kSearch, Reading::kMaybe);
  if (found) found = found->complement();
  return found;
}

/// Texts that surely are no JSON, by how they begin or because they are no word of it.
const TextAutomaton& no_json() {
  static const TextAutomaton made = [] {
    const auto words = Regex::parse(R"((?:true|false|null)[ \t\r\n]*)");
    const auto begin = Regex::parse(R"([^ \t\r\n{\["0-9-](?:.|[\r\n\u2028\u2029])*)");
    const auto out = TextAutomaton::make(*words, Match::kWhole, Reading::kMaybe);
    const auto other = TextAutomaton::make(*begin, Match::kWhole, Reading::kSurely);
    return *out->complement().intersect(*other);
  }();
  return made;
}

bool has_sign(const Regex& regex, const CodeSet& sign) {
  return !(regex.surely & sign).empty() ||
         std::any_of(regex.parts.begin(), regex.parts.end(),
                     [&](const Regex& part) { return has_sign(part, sign); });
}

void drop_sign(Regex& regex, const CodeSet& sign) {
  regex.surely = regex.surely & sign.complement();
  for (Regex& part : regex.parts) drop_sign(part, sign);
}

}  // namespace

JsonSchema::Form JsonSchema::member_form(const std::string& name) const {
  return tags_->texts.contains(name) ? Form::kText : Form::kEither;
}

std::string JsonSchema::member(const std::string& name, const std::string& value, Form object) {
  if (object == Form::kMembers)
    return tags_->before_name + " " + name + " " + tags_->before_value + " " + value + " " +
           tags_->after_value;
  const std::string& space = writer_.json_space();
  return name + " " + space + " \":\" " + space + " " + value;
}

/// A member's name as it stands in such an object; nothing if it cannot.
JsonSchema::Text JsonSchema::name_of(const std::string& name, const Node& place, Form object) {
  if (object != Form::kMembers) return constant(made_text(place, name));
  constexpr std::string_view kBlanks = " \t\r\n";  // readers drop them
  const bool blanks = !name.empty() && (kBlanks.find(name.front()) != std::string_view::npos ||
                                        kBlanks.find(name.back()) != std::string_view::npos);
  if (blanks || name.find(tags_->name_end) != std::string::npos) return std::nullopt;
  return GrammarWriter::literal(name);
}

bool JsonSchema::may_stand(const std::string& text, Form form) {
  if (text.find(tags_->value_end) != std::string::npos) return false;
  return form == Form::kText || no_json().accepts(text);
}

/// A value as it stands in this form; nothing if it cannot.
JsonSchema::Text JsonSchema::constant_in(const Node& value, Form form) {
  if (form == Form::kMembers) {
    std::string out;
    for (std::size_t i = 0; i < value.keys.size(); ++i) {
      const Text name = name_of(value.keys[i], value, form);
      const Text text = constant_in(*value.items[i], member_form(value.keys[i]));
      if (!name || !text) return std::nullopt;
      out += " " + member(*name, *text, form);
    }
    return out.empty() ? "\"\"" : out;
  }
  const bool plain = form != Form::kJson && value.is(Node::Kind::kString);
  const bool stands = plain && may_stand(value.text, form);
  if (form == Form::kText && !stands) return std::nullopt;
  if (form == Form::kText) return GrammarWriter::literal(value.text);
  if (!stands) return constant(value);
  return "(" + GrammarWriter::literal(value.text) + " | " + constant(value) + ")";
}

/// Texts of a length. One that has a sign with which tags begin may be a fifth as long only: what
/// follows the sign counts as one with it.
std::string JsonSchema::counted_text(const Range& length) {
  const std::string part = "(" + part_without(tags_->value_end) + ")";
  const std::string least = std::to_string(length.min);
  if (length.max == Regex::kUnbounded) return part + "{" + least + ",}";
  std::string out =
      "[^" + tags_->value_end.substr(0, 1) + "]{" + least + "," + std::to_string(length.max) + "}";
  const std::size_t parts = length.max / kTagBytesCounted;
  if (parts >= std::max<std::size_t>(length.min, 1))
    out += " | " + part + "{" + least + "," + std::to_string(parts) + "}";
  return out;
}

JsonSchema::Text JsonSchema::plain_content(StringRules rules, const Node& place, Form form) {
  constexpr std::size_t kCountedMax = 100;
  const std::size_t expressions = rules.wholes.size() + rules.searches.size();
  const bool lengths = rules.length.min > 0 || rules.length.max != Regex::kUnbounded;
  const bool free = rules.not_searches.empty() && rules.not_texts.empty();
  const bool text = form == Form::kText && free;
  if (text && expressions == 0 && lengths) return counted_text(rules.length);
  const std::size_t counted = std::max(rules.length.min, lengths ? rules.length.max : 0);
  if (form == Form::kEither && counted > kCountedMax && counted != Regex::kUnbounded)
    return std::nullopt;  // In quotes it is counted without states.
  // One expression for the whole text is written as it is, if no tag can begin in it.
  const CodeSet sign = CodeSet::one(static_cast<unsigned char>(tags_->value_end.front()));
  Regex* whole =
      text && expressions == 1 && !rules.wholes.empty() ? &rules.wholes.front() : nullptr;
  if (text && expressions == 1 && !whole) {
    const Regex::Trimmed plain = rules.searches.front().trimmed();
    if (plain.start && plain.end) whole = &rules.searches.front();
  }
  if (whole && !has_sign(*whole, sign)) return string_content(rules, place, Spelling::kPlain);
  const auto states = automaton(rules, place);
  auto rest = states ? states->intersect(*without(tags_->value_end))
                     : Result<TextAutomaton>(TextAutomaton());
  if (rest && form == Form::kEither) rest = rest->intersect(no_json());
  if (whole && (!states || !rest)) {
    // Too large: without the sign.
    forgive();
    drop_sign(*whole, sign);
    return string_content(rules, place, Spelling::kPlain);
  }
  if (!rest)
    fail(place, "the string's keywords are not supported in the model's form of calls: " +
                    rest.error().message);
  if (failed()) return "";
  return written(*rest, Spelling::kPlain, place);
}

JsonSchema::Text JsonSchema::plain_strings(const Flat& flat, Form form) {
  const StringRules rules = string_rules(flat.plain);
  if (failed()) return "";
  if (rules.length.empty()) return std::nullopt;
  const Text text = plain_content(rules, place_of(flat), form);
  // There is another way to write it.
  if (form == Form::kEither && failed()) {
    forgive();
    return std::nullopt;
  }
  if (!text || failed()) return text;
  return "(" + *text + ")";
}

}  // namespace troupe
