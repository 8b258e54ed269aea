#include "model/grammar/json_schema.h"

#include <algorithm>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/endless_rules.h"

namespace troupe {

JsonSchema::JsonSchema(GrammarWriter& writer, JsonDocument& document, std::size_t& steps,
                       const TaggedMembers* tags)
    : writer_(writer), document_(document), tags_(tags), steps_(steps) {}

Result<std::string> JsonSchema::write() {
  // A value that would have to be in itself without end is none. That shows when the rules are
  // there; they are written again without it.
  constexpr int kRoundsMax = 10;
  collect_ids();
  const Node& all = document_.root();
  Set root_schemas{&all};
  if (tags_) root_schemas.push_back(&made(all, {{"type", &made_text(all, "object")}}));
  const GrammarWriter before = writer_;
  for (int round = 0; round < kRoundsMax; ++round) {
    const Text root = value(root_schemas, tags_ ? Form::kMembers : Form::kJson);
    if (!failed() && !root) fail(all, "no value can satisfy this schema.");
    if (failed()) return status_.error();
    const auto endless = recursive_ ? endless_rules(writer_.rules()) : std::set<std::string>();
    for (auto& [key, rule] : rules_)
      if (endless.contains(rule.name)) rule.never = again_ = true;
    if (!again_) return *root;
    writer_ = before;
    again_ = recursive_ = false;
    shared_.clear();
    std::erase_if(rules_, [](const auto& entry) { return !entry.second.never; });
  }
  fail(all, "too many values would have to be in themselves without end.");
  return status_.error();
}

void JsonSchema::fail(const Node& at, const std::string& what) {
  constexpr std::size_t kShownMax = 300;
  if (!status_.ok()) return;
  std::string place = at.place();
  if (place.size() > kShownMax) place = place.substr(0, kShownMax) + "...";
  status_ = invalid_argument(place + ": " + what.substr(0, 3 * kShownMax));
}

/// Counts what is done for the document; false, and an error, when it is too much.
bool JsonSchema::work(const Node& at, std::size_t steps) {
  steps_ += steps;
  if (spent()) fail(at, "the schema is too complex.");
  return !failed();
}

/// There is another way. Not where all that may be done has been done.
void JsonSchema::forgive() {
  if (!spent()) status_ = {};
}

void JsonSchema::unsupported(const Node& schema, std::string_view keyword, std::string_view how) {
  fail(schema, "\"" + std::string(keyword) + "\" is not supported" + (how.empty() ? "" : " ") +
                   std::string(how) + ".");
}

JsonSchema::Flat JsonSchema::flatten(const Set& schemas) {
  Flat out;
  Set open(schemas.rbegin(), schemas.rend());
  std::set<const Node*> seen;
  while (!open.empty() && !failed()) {
    const Node* schema = open.back();
    open.pop_back();
    if (!seen.insert(schema).second || !work(*schema, 1)) continue;
    check_loops(*schema, 0);
    const Parts& found = parts(*schema);
    out.never = out.never || found.never;
    if (found.plain) out.plain.push_back(found.plain);
    out.groups.insert(out.groups.end(), found.groups.begin(), found.groups.end());
    open.insert(open.end(), found.also.rbegin(), found.also.rend());
  }
  const auto by_id = [](const Node* a, const Node* b) { return a->id < b->id; };
  for (Set* set : {&out.plain, &out.groups}) {
    std::sort(set->begin(), set->end(), by_id);
    set->erase(std::unique(set->begin(), set->end()), set->end());
  }
  for (const Node* plain : out.plain) out.types &= type_mask(*plain);
  return out;
}

const JsonSchema::Node& JsonSchema::place_of(const Flat& flat) const {
  if (!flat.plain.empty()) return *flat.plain.front();
  return flat.groups.empty() ? document_.root() : *flat.groups.front();
}

/// The rule for values for which all the schemas hold.
JsonSchema::Text JsonSchema::value(const Set& schemas, Form form) {
  if (failed()) return "";
  Flat flat = flatten(schemas);
  if (failed()) return "";
  if (form == Form::kMembers) flat.types &= kObject;
  if (form == Form::kText) flat.types &= kString;
  if (flat.never || flat.types == 0) return std::nullopt;
  if (flat.plain.empty() && flat.groups.empty() && form == Form::kJson) return writer_.json_value();
  std::vector<std::size_t> key{static_cast<std::size_t>(form)};
  for (const Node* node : flat.plain) key.push_back(node->id);
  for (const Node* node : flat.groups) key.push_back(node->id);
  const Node& place = place_of(flat);
  const auto [at, added] = rules_.try_emplace(std::move(key));
  Rule& rule = at->second;
  if (!added) {
    if (rule.done && rule.never) return std::nullopt;
    recursive_ = recursive_ || !rule.done;
    return rule.name;
  }
  if (rules_.size() > kSetsMax || writer_.rules().size() > CompiledGrammar::kTextBytesMax) {
    fail(place, "the schema asks for too many combinations, or for too long a grammar.");
    return "";
  }
  if (depth_ >= kDepthMax) {
    fail(place, "its parts need each other more than " + std::to_string(kDepthMax) + " deep.");
    return "";
  }
  ++depth_;
  rule.name = writer_.reserve("v");
  const Text text = rule_text(flat, form);
  --depth_;
  rule.done = true;
  rule.never = !text;
  if (failed()) return "";
  if (text) {
    writer_.define(rule.name, *text);
    return rule.name;
  }
  again_ = again_ || recursive_;  // It may have been named.
  return std::nullopt;
}

JsonSchema::Text JsonSchema::rule_text(const Flat& flat, Form form) {
  for (const Node* plain : flat.plain) {
    if (const Node* values = plain->find("enum")) return one_of_values(flat, *values, form);
    if (const Node* only = plain->find("const"))
      return one_of_values(flat, made_list(*plain, {only}), form);
  }
  if (flat.groups.empty()) return by_type(flat, form);
  // One of the first group's alternatives joins the rest.
  Set rest = flat.plain;
  rest.insert(rest.end(), flat.groups.begin() + 1, flat.groups.end());
  std::set<std::string> seen;
  std::string out;
  for (const Node* alternative : alternatives(*flat.groups.front(), flat.plain)) {
    Set all = rest;
    all.push_back(alternative);
    const Text text = value(all, form);
    if (failed()) return "";
    if (!text || !seen.insert(*text).second) continue;
    out += (out.empty() ? "" : " | ") + *text;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

JsonSchema::Text JsonSchema::one_of_values(const Flat& flat, const Node& values, Form form) {
  std::string out;
  const Node* unwritten = nullptr;
  Set all = flat.plain;
  all.insert(all.end(), flat.groups.begin(), flat.groups.end());
  for (const Node* one : values.items) {
    Answer answer = Answer::kYes;
    for (const Node* schema : all) {
      const Answer part = fits(*one, *schema, 0);
      if (failed()) return "";
      if (part == Answer::kNo) answer = Answer::kNo;
      if (part == Answer::kNo) break;
      if (part == Answer::kUnknown) answer = Answer::kUnknown;
    }
    if (answer == Answer::kUnknown) {
      fail(values, "whether " + constant(*one).substr(0, 60) +
                       " satisfies the keywords beside it cannot be told.");
      return "";
    }
    if (answer == Answer::kNo) continue;
    const Text text = constant_in(*one, form);
    if (text) out += (out.empty() ? "" : " | ") + *text;
    if (!text) unwritten = one;
  }
  if (out.empty() && unwritten)
    fail(*unwritten, "this value cannot be written in the model's form of calls.");
  if (out.empty()) return std::nullopt;
  return out;
}

JsonSchema::Text JsonSchema::by_type(const Flat& flat, Form form) {
  if (form == Form::kMembers) return objects(flat, form);
  if (form == Form::kText) return plain_strings(flat, form);
  std::string out;
  const auto add = [&out](const Text& text) {
    if (text) out += (out.empty() ? "" : " | ") + *text;
  };
  constexpr std::size_t kLookedAtOfStep = 64;
  const auto word_of = [](const Node& value) -> std::string_view {
    if (value.is(Node::Kind::kNull)) return "null";
    if (!value.is(Node::Kind::kBoolean)) return "";
    return value.boolean ? "true" : "false";
  };
  const auto free_of = [&](std::string_view word) {
    for (const Node* plain : flat.plain) {
      const Node* values = plain->find(schema_keyword::kNotValues);
      if (!values || !work(*values, 1 + values->items.size() / kLookedAtOfStep)) continue;
      if (std::any_of(values->items.begin(), values->items.end(),
                      [&](const Node* one) { return word_of(*one) == word; }))
        return Text();
    }
    return Text(GrammarWriter::literal(word));
  };
  if (form == Form::kEither && (flat.types & kString)) add(plain_strings(flat, form));
  if (flat.plain.empty()) {
    add(writer_.json_value());
    return out;
  }
  if (flat.types & kNull) add(free_of("null"));
  if (flat.types & kBoolean) add(free_of("true"));
  if (flat.types & kBoolean) add(free_of("false"));
  if (flat.types & (kInteger | kFraction)) add(numbers(flat));
  if (flat.types & kString) add(strings(flat));
  if (flat.types & kArray) add(arrays(flat));
  if (flat.types & kObject) add(objects(flat, Form::kJson));
  if (out.empty()) return std::nullopt;
  return out;
}

/// A value with the white space that JSON allows inside.
std::string JsonSchema::constant(const Node& value) {
  const auto quoted = [](const std::string& text) {
    return GrammarWriter::literal("\"" + json_escaped(text) + "\"");
  };
  const std::string space = writer_.json_space();
  const auto list = [&](const char* open, const char* close, const auto& item) {
    std::string out = GrammarWriter::literal(open) + " " + space;
    for (std::size_t i = 0; i < value.items.size(); ++i)
      out += (i > 0 ? " " + space + " \",\" " + space + " " : " ") + item(i);
    return out + (value.items.empty() ? " " : " " + space + " ") + GrammarWriter::literal(close);
  };
  switch (value.kind) {
    case Node::Kind::kNull:
      return "\"null\"";
    case Node::Kind::kBoolean:
      return value.boolean ? "\"true\"" : "\"false\"";
    case Node::Kind::kNumber:
      return GrammarWriter::literal(value.text);
    case Node::Kind::kString:
      return quoted(value.text);
    case Node::Kind::kArray:
      return list("[", "]", [&](std::size_t i) { return constant(*value.items[i]); });
    case Node::Kind::kObject:
      break;
  }
  return list("{", "}", [&](std::size_t i) {
    return quoted(value.keys[i]) + " " + space + " \":\" " + space + " " +
           constant(*value.items[i]);
  });
}

void GrammarWriter::count_work_of(const GrammarWriter& other) {
  schema_bytes_ = other.schema_bytes_;
  schema_steps_ = other.schema_steps_;
}

Result<std::string> GrammarWriter::json_schema(std::string_view schema) {
  return write_schema(schema, nullptr);
}

Result<std::string> GrammarWriter::json_members(std::string_view schema,
                                                const TaggedMembers& form) {
  return write_schema(schema, &form);
}

Result<std::string> GrammarWriter::write_schema(std::string_view schema,
                                                const TaggedMembers* form) {
  schema_bytes_ += schema.size();
  if (schema_bytes_ > kSchemaBytesMax)
    return invalid_argument("the JSON schemas are too long, together or in what they repeat.");
  auto document = JsonDocument::parse(schema);
  if (!document)
    return invalid_argument("the JSON schema cannot be used: " + document.error().message);
  auto root = JsonSchema(*this, *document, schema_steps_, form).write();
  if (root && rules_.size() > CompiledGrammar::kTextBytesMax)
    return invalid_argument("the JSON schema's grammar would be too long.");
  return root;
}

}  // namespace troupe
