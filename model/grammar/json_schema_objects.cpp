// Objects: members by name, other members, and how many there may be.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

/// A name between tags: no tag begins in it, and no blank is at its ends, where readers drop it.
Result<TextAutomaton> tagged_name() {
  const auto regex = Regex::parse(R"([^\x00-\x20<](?:[^\x00-\x1F<]*[^\x00-\x20<])?)");
  return TextAutomaton::make(*regex, TextAutomaton::Match::kWhole, TextAutomaton::Reading::kSurely);
}

}  // namespace

std::set<std::string, std::less<>> JsonSchema::required_names(const Set& plain) {
  std::set<std::string, std::less<>> out;
  for (const Node* schema : plain) {
    if (const Node* names = schema->find("required"))
      for (const Node* name : names->items) out.insert(name->text);
  }
  return out;
}

JsonSchema::Set JsonSchema::name_schemas(const Set& plain) {
  Set out;
  for (const Node* schema : plain)
    if (const Node* names = schema->find("propertyNames")) out.push_back(names);
  return out;
}

/// The names that schemas know, in the order in which they name them.
std::vector<std::string> JsonSchema::member_names(const Set& plain) {
  std::vector<std::string> out;
  std::set<std::string, std::less<>> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) out.push_back(name);
  };
  for (const Node* schema : plain) {
    if (const Node* properties = schema->find("properties"))
      for (const std::string& name : properties->keys) add(name);
  }
  for (const Node* schema : plain) {
    if (const Node* names = schema->find("required"))
      for (const Node* name : names->items) add(name->text);
  }
  // Names that are listed are known names.
  const Set names = name_schemas(plain);
  if (names.empty()) return out;
  for (const Node* schema : flatten(names).plain) {
    if (const Node* list = schema->find("enum"))
      for (const Node* name : list->items)
        if (name->is(Node::Kind::kString)) add(name->text);
    if (const Node* only = schema->find("const"); only && only->is(Node::Kind::kString))
      add(only->text);
  }
  return out;
}

std::optional<JsonSchema::Set> JsonSchema::member_schemas(const Set& plain,
                                                          const std::string& name) {
  Set out;
  for (const Node* schema : plain) {
    bool known = false;
    const Node* properties = schema->find("properties");
    if (const Node* own = properties ? properties->find(name) : nullptr) {
      out.push_back(own);
      known = true;
    }
    const Node* patterns = schema->find("patternProperties");
    for (std::size_t i = 0; patterns && i < patterns->keys.size() && !failed(); ++i) {
      const std::size_t bytes = name.size() + patterns->keys[i].size();
      if (!work(*schema, 1 + bytes / kBytesOfStep)) return Set{};
      const TextAutomaton* surely = name_pattern(*schema, patterns->keys[i], Reading::kSurely);
      const TextAutomaton* maybe = name_pattern(*schema, patterns->keys[i], Reading::kMaybe);
      if (failed()) return Set{};
      const bool fits = surely->accepts(name);
      if (fits != maybe->accepts(name)) return std::nullopt;
      if (!fits) continue;
      out.push_back(patterns->items[i]);
      known = true;
    }
    const Node* others = schema->find("additionalProperties");
    if (!known && others) out.push_back(others);
  }
  return out;
}

const TextAutomaton* JsonSchema::name_pattern(const Node& schema, const std::string& text,
                                              Reading reading) {
  const TextAutomaton* states = automaton_of(schema, text, Match::kSearch, reading);
  if (!states) unsupported(schema, "patternProperties", "with so complex an expression");
  return states;
}

/// The members with known names; false if a required one cannot be.
bool JsonSchema::known_members(const Flat& flat, Members& out, Form form) {
  const auto required = required_names(flat.plain);
  const Set names = name_schemas(flat.plain);
  for (const std::string& name : member_names(flat.plain)) {
    const auto schemas = member_schemas(flat.plain, name);
    if (failed() || !work(*flat.plain.front(), flat.plain.size())) return false;
    const Answer fitting = name_fits(name, names);
    if (!schemas || fitting == Answer::kUnknown) {
      fail(*flat.plain.front(),
           "whether a pattern means the member \"" + name + "\" cannot be told.");
      return false;
    }
    const bool needed = required.contains(name);
    Text text;
    const Text key = name_of(name, *flat.plain.front(), form);
    if (!key && needed)
      fail(*flat.plain.front(), "\"required\": the name \"" + name +
                                    "\" cannot be written in the model's form of calls.");
    if (key && fitting == Answer::kYes)
      text = value(*schemas, form == Form::kMembers ? member_form(name) : Form::kJson);
    if (failed() || (!text && needed)) return false;
    if (text) out.known.push_back({name, member(*key, *text, form), needed});
  }
  return true;
}

/// A schema that names members and says nothing of others means these, as OpenAI's and XGrammar's
/// strict modes take it: a model that is let to would write others for ever.
bool JsonSchema::names_all(const Flat& flat, const Members& members) {
  bool names = false;
  for (const Node* schema : flat.plain) {
    for (const char* others : {"additionalProperties", "patternProperties", "propertyNames"})
      if (schema->find(others)) return false;
    const Node* properties = schema->find("properties");
    names = names || (properties && !properties->keys.empty());
  }
  return names && members.known.size() >= members.count.min;
}

/// Members with names that no schema lists: each kind of name, by the patterns that it matches.
void JsonSchema::other_members(const Flat& flat, Members& out, Form form) {
  struct Names {
    std::optional<TextAutomaton> texts;  ///< nothing: any
    Set schemas;
    bool matched = false;
  };
  constexpr std::size_t kKindsMax = 64;
  std::vector<Names> kinds(1);
  const auto narrowed = [&](const Names& names,
                            const TextAutomaton& texts) -> std::optional<Names> {
    auto both = names.texts ? names.texts->intersect(texts) : Result<TextAutomaton>(texts);
    if (names.texts && !charge(*flat.plain.front(), both)) return std::nullopt;
    if (!both)
      fail(*flat.plain.front(),
           "the names of other members are not supported: " + both.error().message);
    if (!both || both->empty()) return std::nullopt;
    return Names{std::move(*both), names.schemas, names.matched};
  };
  for (const Node* schema : flat.plain) {
    for (Names& names : kinds) names.matched = false;
    const Node* others = schema->find("additionalProperties");
    const Node* patterns = schema->find("patternProperties");
    for (std::size_t i = 0; patterns && i < patterns->keys.size(); ++i) {
      const TextAutomaton* surely = name_pattern(*schema, patterns->keys[i], Reading::kSurely);
      const TextAutomaton* maybe = name_pattern(*schema, patterns->keys[i], Reading::kMaybe);
      if (failed()) return;
      std::vector<Names> next;
      const bool last = i + 1 == patterns->keys.size();
      for (const Names& names : kinds) {
        if (auto inside = narrowed(names, *surely); inside && !patterns->items[i]->is_false()) {
          inside->schemas.push_back(patterns->items[i]);
          inside->matched = true;
          next.push_back(std::move(*inside));
        }
        // Those that no pattern takes are dropped where they may not be.
        if (last && !names.matched && others && others->is_false()) continue;
        if (auto outside = narrowed(names, maybe->complement()))
          next.push_back(std::move(*outside));
      }
      if (next.size() > kKindsMax)
        unsupported(*schema, "patternProperties", "with so many patterns that overlap");
      if (failed()) return;
      kinds = std::move(next);
    }
    if (others) {
      std::erase_if(kinds,
                    [&](const Names& names) { return !names.matched && others->is_false(); });
      for (Names& names : kinds)
        if (!names.matched) names.schemas.push_back(others);
    }
  }
  if (kinds.empty()) return;
  for (const Names& names : kinds) {
    const Text name = other_name(flat, names.texts, form);
    if (failed()) return;
    if (!name) continue;
    const Text text = value(names.schemas, form == Form::kMembers ? Form::kEither : form);
    if (failed()) return;
    if (text) out.other += (out.other.empty() ? "" : " | ") + member(*name, *text, form);
  }
  if (!out.other.empty()) out.other = shared_rule("other", out.other);
}

/// A name of a kind that no schema lists.
JsonSchema::Text JsonSchema::other_name(const Flat& flat, std::optional<TextAutomaton> texts,
                                        Form form) {
  const Node& place = *flat.plain.front();
  const auto join = [&](Result<TextAutomaton> more) {
    if (!charge(place, more)) return;
    if (more && texts) {
      more = texts->intersect(*more);
      if (!charge(place, more)) return;
    }
    if (more)
      texts = std::move(*more);
    else
      fail(place, "the names of other members are not supported: " + more.error().message);
  };
  const Set schemas = name_schemas(flat.plain);
  if (!schemas.empty()) {
    const Flat names = flatten(schemas);
    if (failed()) return "";
    if (names.never || !(names.types & kString)) return std::nullopt;
    if (!names.groups.empty()) {
      unsupported(place, "propertyNames", "with alternatives");
      return "";
    }
    for (const Node* plain : names.plain)
      if (plain->find("enum") || plain->find("const")) return std::nullopt;
    auto states = automaton(string_rules(names.plain), place);
    if (!states) return "";
    join(std::move(*states));
  }
  std::vector<std::string> known = member_names(flat.plain);
  if (texts) std::erase_if(known, [&](const std::string& name) { return !texts->accepts(name); });
  if (!known.empty() && !failed()) join(TextAutomaton::all_but(known));
  if (form == Form::kMembers) join(tagged_name());
  if (failed()) return "";
  if (!texts) return writer_.json_string();
  const bool tagged = form == Form::kMembers;
  const Text text = written(*texts, tagged ? Spelling::kPlain : Spelling::kName, place);
  if (!text || tagged) return text;
  return "\"\\\"\" " + *text + " \"\\\"\"";
}

JsonSchema::Text JsonSchema::objects(const Flat& flat, Form form) {
  for (const Node* schema : flat.plain) {
    const Node* values = schema->find(schema_keyword::kNotValues);
    if (values && std::any_of(values->items.begin(), values->items.end(),
                              [](const Node* value) { return value->is(Node::Kind::kObject); }))
      fail(*schema, "to exclude single objects is not supported.");
  }
  if (failed()) return "";
  Members members;
  members.count = counts(flat.plain, "minProperties", "maxProperties");
  if (members.count.empty()) return std::nullopt;
  const bool possible = known_members(flat, members, form);
  if (failed()) return "";
  if (!possible) return std::nullopt;
  if (!names_all(flat, members)) other_members(flat, members, form);
  if (failed()) return "";
  const auto needed =
      static_cast<std::size_t>(std::count_if(members.known.begin(), members.known.end(),
                                             [](const Member& member) { return member.required; }));
  const bool bounded = members.other.empty() && members.known.size() <= members.count.max;
  members.counted =
      members.count.min > needed || (members.count.max != Regex::kUnbounded && !bounded);
  if (members.counted)
    members.keyword = members.count.min > needed ? "minProperties" : "maxProperties";
  const bool tagged = form == Form::kMembers;
  return member_chain(members, *flat.plain.front(), tagged ? Brackets{} : brackets('{', '}'));
}

JsonSchema::Brackets JsonSchema::brackets(char open, char close) {
  const auto sign = [](char c) { return GrammarWriter::literal(std::string_view(&c, 1)) + " "; };
  return {sign(open), sign(','), sign(close), writer_.json_space() + " "};
}

/// Written once: objects that end with the same members share that.
std::string JsonSchema::shared_rule(std::string_view hint, const std::string& expression) {
  std::string& name = shared_[expression];
  if (name.empty()) name = writer_.rule(hint, expression);
  return name;
}

/// Members in order, each once, then others. After `taken` of them, `more` is what begins with
/// member k or one behind it, `rest` what may follow a member.
JsonSchema::Text JsonSchema::member_chain(const Members& members, const Node& place,
                                          const Brackets& around) {
  const std::size_t known = members.known.size();
  const Range count = members.counted ? members.count : Range{};
  const std::size_t cap = !members.counted                 ? 0
                          : count.max != Regex::kUnbounded ? std::min(count.max, known + 1)
                                                           : count.min;
  constexpr std::size_t kChainMax = 10'000;  // A rule or two each, of 100 bytes.
  if (cap > kChainMax || (known + 1) * (cap + 1) > kChainMax) {
    unsupported(place, members.keyword,
                members.counted ? "with so many that are to be counted" : "with so many");
    return "";
  }
  const std::string& space = around.space;
  const std::string end = around.close.empty() ? "\"\"" : around.close;
  const std::string comma = around.comma + space;
  const auto either = [](const Text& a, const Text& b) -> Text {
    if (!a || !b) return a ? a : b;
    return *a + " | " + *b;
  };
  bool undecided = false;
  std::vector<Text> more(cap + 1), rest(cap + 1);  // for k + 1, then for k
  for (std::size_t k = known + 1; k-- > 0;) {
    std::vector<Text> more_here(cap + 1), rest_here(cap + 1);
    const bool open_end =
        std::none_of(members.known.begin() + static_cast<std::ptrdiff_t>(k), members.known.end(),
                     [](const Member& member) { return member.required; });
    for (std::size_t taken = cap + 1; taken-- > 0;) {
      Text begin;
      if (k == known) {
        const std::size_t missing = count.min > taken ? count.min - taken : 0;
        const bool room = count.max == Regex::kUnbounded || taken < count.max;
        // Two others may have one name, and count once.
        undecided = undecided || (!members.other.empty() && missing > 1);
        if (!members.other.empty() && missing <= 1 && room) {
          const std::string last =
              count.max == Regex::kUnbounded ? "" : std::to_string(count.max - taken - 1);
          begin = members.other + " (" + space + comma + members.other + "){0," + last + "} " +
                  space + end;
        }
      } else if (!members.counted || count.max == Regex::kUnbounded || taken < count.max) {
        const Member& member = members.known[k];
        const std::size_t next = std::min(taken + 1, cap);
        if (rest[next]) begin = member.text + " " + *rest[next];
        if (!member.required) begin = either(begin, more[taken]);
      }
      if (begin) more_here[taken] = shared_rule("more", *begin);
      Text follow;
      if (open_end && taken >= count.min) follow = end;
      if (more_here[taken]) follow = either(follow, comma + *more_here[taken]);
      if (follow && (k > 0 || known == 0))
        rest_here[taken] = shared_rule("rest", space + "(" + *follow + ")");
    }
    more = std::move(more_here);
    rest = std::move(rest_here);
  }
  const bool may_be_empty =
      count.min == 0 && std::none_of(members.known.begin(), members.known.end(),
                                     [](const Member& member) { return member.required; });
  const Text all = either(may_be_empty ? Text(end) : Text(), more[0]);
  if (!all && undecided)
    unsupported(place, "minProperties", "above the number of named members plus one");
  if (!all) return std::nullopt;
  return around.open + space + "(" + *all + ")";
}

}  // namespace troupe
