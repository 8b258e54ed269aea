// Arrays whose items differ. Values that are listed come in any order if they are few, else in the
// order of the list. Of others there are kinds that have no value in common, such as texts by their
// first letter: one item of each kind at most, in the order of the kinds, so that no two are equal.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

using Kind = JsonNode::Kind;

/// Kinds of texts by their first character, in the order of their codes; letters have one for both
/// cases. The last are scripts, and parts of large ones.
std::vector<std::string> beginnings() {
  std::vector<std::string> out = {"[\\x00-,:-@\\[-^`{-\\x7F]", "-", "\\.", "/"};
  for (char c = '0'; c <= '9'; ++c) out.push_back(std::string(1, c));
  out.push_back("_");
  for (char c = 'a'; c <= 'z'; ++c)
    out.push_back("[" + std::string(1, c) + static_cast<char>(c - 'a' + 'A') + "]");
  for (const char* script :
       {"[\\u0080-\\u036F]", "[\\u0370-\\u03FF]", "[\\u0400-\\u041F]", "[\\u0420-\\u043F]",
        "[\\u0440-\\u052F]", "[\\u0530-\\u2FFF]", "[\\u3000-\\u30FF]", "[\\u3100-\\u4FFF]",
        "[\\u5000-\\u57FF]", "[\\u5800-\\u5FFF]", "[\\u6000-\\u67FF]", "[\\u6800-\\u6FFF]",
        "[\\u7000-\\u77FF]", "[\\u7800-\\u7FFF]", "[\\u8000-\\u8FFF]", "[\\u9000-\\uABFF]",
        "[\\uAC00-\\uBFFF]", "[\\uC000-\\uD7FF]", "[\\uE000-\\u{10FFFF}]"})
    out.emplace_back(script);
  return out;
}

/// Where kinds of numbers begin, but the first one: 0 to 9 or to 99 are one each, above them and
/// below them those with the same first digit and as many digits.
std::vector<Decimal> steps_of_numbers(bool fine) {
  constexpr int kDigitsMax = 9;
  std::vector<Decimal> out;
  for (int digits = kDigitsMax; digits >= 1; --digits)
    out.push_back(Decimal::parse("-1" + std::string(static_cast<std::size_t>(digits - 1), '0')));
  const int single = fine ? 100 : 10;
  for (int i = 0; i < single; ++i) out.emplace_back(i);
  for (int zeros = fine ? 2 : 1; zeros < kDigitsMax; ++zeros)
    for (int digit = 1; digit <= 9; ++digit)
      out.push_back(Decimal::parse(std::to_string(digit) +
                                   std::string(static_cast<std::size_t>(zeros), '0')));
  return out;
}

}  // namespace

/// The values that an "enum" or "const" lists and that satisfy the schemas. Nothing: none lists
/// any, or whether one satisfies them cannot be told.
std::optional<JsonSchema::Set> JsonSchema::listed_values(const Set& schemas) {
  for (const Node* plain : flatten(schemas).plain) {
    const Node* list = plain->find("enum");
    const Node* only = plain->find("const");
    if (!list && !only) continue;
    Set values;
    std::set<std::string_view> texts;
    for (const Node* one : list ? list->items : Set{only}) {
      const bool text = one->is(Kind::kString);
      if (!text && !work(*plain, values.size())) return std::nullopt;
      const bool known =
          text ? !texts.insert(one->text).second
               : std::any_of(values.begin(), values.end(),
                             [&](const Node* other) { return same_value(*one, *other); });
      Answer answer = Answer::kYes;
      for (const Node* schema : schemas)
        if (answer == Answer::kYes) answer = fits(*one, *schema, 0);
      if (!known && answer == Answer::kYes) values.push_back(one);
      if (answer == Answer::kUnknown) return std::nullopt;
    }
    return values;
  }
  return std::nullopt;
}

/// Whether the schemas say nothing but which types there may be: lists of these share their kinds.
bool JsonSchema::type_alone(const Set& schemas) {
  const Flat flat = flatten(schemas);
  return flat.groups.empty() && std::all_of(flat.plain.begin(), flat.plain.end(), [](auto* plain) {
           return plain->keys == std::vector<std::string>{"type"};
         });
}

/// Schemas of kinds of values that have none in common, the same ones for all lists.
const JsonSchema::Set& JsonSchema::kinds(unsigned types, bool fine) {
  const auto [at, added] = kinds_.try_emplace({types, fine});
  Set& out = at->second;
  if (!added) return out;
  const Node& place = document_.root();
  const auto constant = [&](Kind kind, bool yes) {
    Node& node = make(kind, place);
    node.boolean = yes;
    out.push_back(&made(place, {{"const", &node}}));
  };
  if (types & kNull) constant(Kind::kNull, false);
  if (types & kBoolean) constant(Kind::kBoolean, false);
  if (types & kBoolean) constant(Kind::kBoolean, true);
  if (types & (kInteger | kFraction)) {
    const Node* below = nullptr;
    const auto number = [&](const Node* from, const Node* to) {
      std::vector<std::pair<std::string, const Node*>> members = {
          {"type", &made_text(place, types & kFraction ? "number" : "integer")}};
      if (from) members.emplace_back("minimum", from);
      if (to) members.emplace_back("exclusiveMaximum", to);
      out.push_back(&made(place, std::move(members)));
    };
    for (const Decimal& step : steps_of_numbers(fine)) {
      const Node& next = made_number(place, (step.negative() ? "-" : "") + step.whole());
      number(below, &next);
      below = &next;
    }
    number(below, nullptr);
  }
  if (types & kString) {
    const Node& text = made_text(place, "string");
    out.push_back(&made(place, {{"type", &text}, {"maxLength", &made_number(place, "0")}}));
    for (const std::string& begin : beginnings()) {
      const bool letter = begin.size() == 4 && begin.front() == '[';
      const auto add = [&](const std::string& pattern) {
        out.push_back(&made(place, {{"type", &text}, {"pattern", &made_text(place, pattern)}}));
      };
      if (!fine || !letter) {
        add("^" + begin);
        continue;
      }
      // By the second character, too.
      add("^" + begin + "(?:[^A-Za-z]|$)");
      for (const char* second : {"[a-eA-E]", "[f-jF-J]", "[k-oK-O]", "[p-tP-T]", "[u-zU-Z]"})
        add("^" + begin + second);
    }
  }
  return out;
}

/// The kinds of objects by the member that tells most: one that must be there rather than another,
/// a free text rather than a number. It must be there then. None: no member tells enough.
JsonSchema::Set JsonSchema::kinds_by_member(const Set& schemas) {
  const Flat flat = flatten(schemas);
  const auto required = required_names(flat.plain);
  std::string best;
  int best_rank = 0;
  unsigned best_types = 0;
  for (const std::string& name : member_names(flat.plain)) {
    const auto own = member_schemas(flat.plain, name);
    if (failed()) return {};
    if (!own || name_fits(name, name_schemas(flat.plain)) != Answer::kYes) continue;
    const Flat member = flatten(*own);
    const bool listed =
        std::any_of(member.plain.begin(), member.plain.end(),
                    [](const Node* plain) { return plain->find("enum") || plain->find("const"); });
    if (failed() || member.never || listed || !member.groups.empty()) continue;
    const bool text = (member.types & kString) != 0 && string_rules(member.plain).free();
    const unsigned types = text ? kString : member.types & (kInteger | kFraction);
    const int rank = types == 0 ? 0 : (required.contains(name) ? 3 : 1) + (text ? 1 : 0);
    if (rank <= best_rank) continue;
    best = name;
    best_rank = rank;
    best_types = types;
  }
  Set out;
  if (best_rank == 0) return out;
  const Node& place = *flat.plain.front();
  const Node& needed = made_list(place, {&made_text(place, best)});
  for (const Node* kind : kinds(best_types, false))
    out.push_back(
        &made(place, {{"required", &needed}, {"properties", &made(place, {{best, kind}})}}));
  return out;
}

/// The schemas of a list's kinds of items; `least`: so many must be of use.
JsonSchema::Set JsonSchema::item_kinds(const Set& schemas, const Range& count, std::size_t& least) {
  constexpr unsigned kCompared = kNull | kBoolean | kInteger | kFraction | kString;
  constexpr std::size_t kKindsMin = 4;            ///< fewer would make no list that is of use
  constexpr std::size_t kFineBytesMax = 100'000;  ///< of rules so far
  const Flat items = flatten(schemas);
  const unsigned types = items.types & kCompared;
  const NumberRange range = number_range(items.plain);
  const bool numbers = (types & (kInteger | kFraction)) != 0;
  const bool many = types == 0 || (types & kString) != 0 || (numbers && !(range.min && range.max));
  least = std::max(count.min, many ? kKindsMin : 0);
  if (types == 0) return (items.types & kObject) ? kinds_by_member(schemas) : Set{};
  const bool free = string_rules(items.plain).free();
  return kinds(types, free && count.min == 0 && count.max == Regex::kUnbounded &&
                          writer_.rules().size() < kFineBytesMax);
}

JsonSchema::Text JsonSchema::unique_items(const Flat& flat, const Range& count, bool prefixed) {
  constexpr std::size_t kAnyOrderMax = 6;
  constexpr std::size_t kKindsBytesMax = 200'000;  ///< of rules for one list
  const Node& place = *flat.plain.front();
  const Set schemas = item_schemas(flat.plain, 0);
  if (prefixed) unsupported(place, "uniqueItems", "beside items that have places of their own");
  const auto values = listed_values(schemas);
  if (failed()) return "";
  const Flat items = flatten(schemas);
  if (items.never || items.types == 0 || (values && values->empty()))
    return count.min > 0 ? Text() : "\"[\" " + writer_.json_space() + " \"]\"";
  if (values && values->size() <= kAnyOrderMax) return any_order(*values, count);
  Members list;
  list.keyword = "uniqueItems";
  for (const Node* one : values.value_or(Set{}))
    list.known.push_back({"", writer_.rule("item", constant(*one)), false});
  if (!values) {
    std::size_t least = 0;
    const std::size_t before = writer_.rules().size();
    const bool kinds_say_all = type_alone(schemas);
    for (const Node* kind : item_kinds(schemas, count, least)) {
      Set all{kind};
      if (!kinds_say_all) all.insert(all.end(), schemas.begin(), schemas.end());
      const Text text = value(all);
      if (failed()) return "";
      if (text) list.known.push_back({"", *text, false});
      if (writer_.rules().size() - before > kKindsBytesMax) {
        unsupported(place, "uniqueItems", "for items that ask for so much");
        return "";
      }
    }
    if (list.known.size() < least) {
      unsupported(place, "uniqueItems", "for items of this kind");
      return "";
    }
  }
  list.count = count;
  list.counted = count.min > 0 || count.max < list.known.size();
  return member_chain(list, place, brackets('[', ']'));
}

/// A rule for each set of values that are there already.
JsonSchema::Text JsonSchema::any_order(const Set& values, const Range& count) {
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
