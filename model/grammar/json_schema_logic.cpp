// Alternatives, and what is left of a schema where another one must not hold.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

using Kind = JsonNode::Kind;

/// Work on proofs that branches exclude each other, for a whole document.
constexpr std::size_t kDisjointStepsMax = 200'000;
constexpr int kDisjointDepthMax = 6;
constexpr int kNegationDepthMax = 60;

}  // namespace

/// A long name that leads to the place is copied.
JsonSchema::Node& JsonSchema::make(Node::Kind kind, const Node& place) {
  const bool may = work(place, place.step.size() / kBytesOfStep);
  return document_.make(kind, may ? place : document_.root());
}

const JsonSchema::Node& JsonSchema::made(const Node& place,
                                         std::vector<std::pair<std::string, const Node*>> members) {
  Node& node = make(Kind::kObject, place);
  for (auto& [key, value] : members) JsonDocument::add(node, std::move(key), *value);
  JsonDocument::seal(node);
  return node;
}

const JsonSchema::Node& JsonSchema::made_text(const Node& place, std::string text) {
  Node& node = make(Kind::kString, place);
  work(place, text.size() / kBytesOfStep);
  node.text = std::move(text);
  return node;
}

const JsonSchema::Node& JsonSchema::made_number(const Node& place, std::string digits) {
  Node& node = make(Kind::kNumber, place);
  node.text = std::move(digits);
  return node;
}

const JsonSchema::Node& JsonSchema::made_list(const Node& place, const Set& items) {
  Node& node = make(Kind::kArray, place);
  work(place, items.size() / kBytesOfStep);
  node.items = items;
  return node;
}

/// An object with nothing but a list of alternatives; it stands for itself when taken apart.
const JsonSchema::Node& JsonSchema::made_group(const Node& place, const char* key,
                                               const Node& list) {
  const Node& group = made(place, {{key, &list}});
  parts_[&group].groups = {&group};
  return group;
}

const JsonSchema::Node& JsonSchema::made_not(const Node& schema) {
  const Node*& known = not_[&schema];
  if (!known) known = &made(schema, {{"not", &schema}});
  return *known;
}

/// The alternatives of a group, such that a value of one of them, for which the schemas beside it
/// hold, satisfies it.
JsonSchema::Set JsonSchema::alternatives(const Node& group, const Set& beside) {
  const Set& branches = group.items.front()->items;
  if (group.keys.front() == "anyOf") return branches;
  const auto with = [&](const Node* branch) {
    Set out = beside;
    out.push_back(branch);
    return out;
  };
  // oneOf: each branch where no other one holds.
  Set out;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    if (!work(group, branches.size())) return {};
    Set all{branches[i]};
    for (std::size_t j = 0; j < branches.size() && !failed(); ++j) {
      if (i == j || disjoint(with(branches[i]), with(branches[j]), 0)) continue;
      all.push_back(&made_not(*branches[j]));
      if (!failed()) (void)parts(*all.back());
      if (failed()) {
        forgive();
        fail(group, "\"oneOf\" is not supported here: whether a value could satisfy both branch " +
                        std::to_string(std::min(i, j)) + " and branch " +
                        std::to_string(std::max(i, j)) + " cannot be told (\"anyOf\" would do).");
      }
    }
    const Node*& branch = branches_[all];
    if (!branch)
      branch = all.size() == 1 ? all.front()
                               : &made(*branches[i], {{"allOf", &made_list(*branches[i], all)}});
    out.push_back(branch);
  }
  return out;
}

/// Schemas of which one holds exactly where this one does not.
JsonSchema::Set JsonSchema::negated(const Node& schema, int depth) {
  if (depth > kNegationDepthMax) {
    fail(schema, "\"not\" is nested too deep.");
    return {};
  }
  if (schema.is(Kind::kBoolean)) {
    if (schema.boolean) return {};
    Node& always = make(Kind::kBoolean, schema);
    always.boolean = true;
    return {&always};
  }
  // What cannot be decided is an error of its own place.
  Set out;
  for (std::size_t i = 0; i < schema.keys.size() && !failed(); ++i) {
    const std::string& key = schema.keys[i];
    const Node& value = *schema.items[i];
    // Older drafts do not look at what stands beside a reference.
    if (key != "$ref" && schema.find("$ref") && constrains(key)) {
      unsupported(schema, key, "beside \"$ref\" within \"not\", \"oneOf\" or \"if\"");
      break;
    }
    const auto add = [&](const Set& more) { out.insert(out.end(), more.begin(), more.end()); };
    check_keyword(schema, key, value);
    if (failed()) break;
    if (key == "allOf" && value.is(Kind::kArray)) {
      for (const Node* one : value.items) add(negated(*one, depth + 1));
    } else if (key == "anyOf" && value.is(Kind::kArray)) {
      Set all;
      for (const Node* one : value.items) all.push_back(&made_not(*one));
      out.push_back(&made(schema, {{"allOf", &made_list(schema, all)}}));
    } else if (key == "not") {
      out.push_back(&value);
    } else if (key == "$ref" && value.is(Kind::kString)) {
      const Node* found = target(schema, value.text);
      if (found) add(negated(*found, depth + 1));
    } else {
      negate_keyword(schema, key, value, out);
    }
  }
  return out;
}

void JsonSchema::negate_keyword(const Node& schema, std::string_view key, const Node& value,
                                Set& out) {
  const auto typed = [&](const char* type, const std::string& keyword, const Node& bound) {
    out.push_back(&made(schema, {{"type", &made_text(schema, type)}, {keyword, &bound}}));
  };
  const auto shifted = [&](bool up) -> const Node& {
    const Decimal n = Decimal::parse(value.text);
    return made_number(schema, (up ? n.plus_one() : n.minus_one()).whole());
  };
  // A plain schema of our own keywords, which none of a document's can be.
  const auto own = [&](std::string_view keyword, const Node& content, const char* type) {
    std::vector<std::pair<std::string, const Node*>> members = {{std::string(keyword), &content}};
    if (type) members.emplace_back("type", &made_text(schema, type));
    const Node& node = made(schema, std::move(members));
    parts_[&node].plain = &node;
    out.push_back(&node);
  };
  if (key == "type") {
    const Node& alone = made(schema, {{"type", &value}});
    const unsigned others = kAllTypes & ~type_mask(alone);
    if (others != 0)
      own(schema_keyword::kTypes, made_text(schema, std::string(1, static_cast<char>(others))),
          nullptr);
  } else if (key == "enum") {
    own(schema_keyword::kNotValues, value, nullptr);
  } else if (key == "const") {
    own(schema_keyword::kNotValues, made_list(schema, {&value}), nullptr);
  } else if (key == "required") {
    const Node& never = make(Kind::kBoolean, schema);
    for (const Node* name : value.items)
      typed("object", "properties", made(schema, {{name->text, &never}}));
  } else if (key == "properties") {
    for (std::size_t i = 0; i < value.keys.size(); ++i) {
      const Node& inverse = made(schema, {{value.keys[i], &made_not(*value.items[i])}});
      const Node& needed = made_list(schema, {&made_text(schema, value.keys[i])});
      out.push_back(&made(schema, {{"type", &made_text(schema, "object")},
                                   {"required", &needed},
                                   {"properties", &inverse}}));
    }
  } else if (key == "minimum") {
    typed("number", "exclusiveMaximum", value);
  } else if (key == "maximum") {
    typed("number", "exclusiveMinimum", value);
  } else if (key == "exclusiveMinimum" && value.is(Kind::kNumber)) {
    typed("number", "maximum", value);
  } else if (key == "exclusiveMaximum" && value.is(Kind::kNumber)) {
    typed("number", "minimum", value);
  } else if (key == "maxLength" || key == "maxItems" || key == "maxProperties") {
    const char* type = key == "maxLength" ? "string" : key == "maxItems" ? "array" : "object";
    typed(type, "min" + std::string(key.substr(3)), shifted(true));
  } else if (key == "minLength" || key == "minItems" || key == "minProperties") {
    const char* type = key == "minLength" ? "string" : key == "minItems" ? "array" : "object";
    if (!Decimal::parse(value.text).is_zero())
      typed(type, "max" + std::string(key.substr(3)), shifted(false));
  } else if (key == "pattern") {
    own(schema_keyword::kNotPattern, value, "string");
  } else if (constrains(key)) {
    unsupported(schema, key, "within \"not\", \"oneOf\" or \"if\"");
  }
}

bool JsonSchema::disjoint(const Set& a, const Set& b, int depth) {
  if (depth > kDisjointDepthMax || ++disjoint_steps_ > kDisjointStepsMax || failed()) return false;
  const Flat left = flatten(a);
  const Flat right = flatten(b);
  if (failed()) return false;
  if (left.never || right.never || disjoint_flat(left, right, depth)) return true;
  // By cases: a group's branches cover what it takes.
  for (const auto& [mine, other] : {std::pair{&left, &right}, std::pair{&right, &left}}) {
    for (const Node* group : mine->groups) {
      const Set& branches = group->items.front()->items;
      const bool all = std::all_of(branches.begin(), branches.end(), [&](const Node* branch) {
        Set with = mine->plain;
        with.push_back(branch);
        Set rest = other->plain;
        rest.insert(rest.end(), other->groups.begin(), other->groups.end());
        return disjoint(with, rest, depth + 1);
      });
      if (all) return true;
    }
  }
  return false;
}

bool JsonSchema::disjoint_flat(const Flat& a, const Flat& b, int depth) {
  unsigned both = a.types & b.types;
  if (both == 0) return true;
  for (const auto& [mine, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    for (const Node* plain : mine->plain) {
      const Node* only = plain->find("const");
      const Node* list = plain->find("enum");
      if (!only && !list) continue;
      const Set values = list ? list->items : Set{only};
      // None of its values is one of the other's.
      const bool none = std::all_of(values.begin(), values.end(), [&](const Node* value) {
        return std::any_of(other->plain.begin(), other->plain.end(), [&](const Node* schema) {
          return fits_plain(*value, *schema, depth) == Answer::kNo;
        });
      });
      if (none) return true;
    }
  }
  if (both & (kInteger | kFraction)) {
    if (number_range(a.plain).disjoint(number_range(b.plain))) both &= ~(kInteger | kFraction);
  }
  const auto apart = [&](const char* min_key, const char* max_key) {
    const Range left = counts(a.plain, min_key, max_key);
    const Range right = counts(b.plain, min_key, max_key);
    return left.max < right.min || right.max < left.min;
  };
  if ((both & kString) && apart("minLength", "maxLength")) both &= ~kString;
  if ((both & kString) && disjoint_strings(a, b)) both &= ~kString;
  if ((both & kArray) && apart("minItems", "maxItems")) both &= ~kArray;
  if ((both & kObject) &&
      (apart("minProperties", "maxProperties") || disjoint_objects(a, b, depth)))
    both &= ~kObject;
  return both == 0;
}

/// By what they must match: formats say nothing to those who do not look at them.
bool JsonSchema::disjoint_strings(const Flat& a, const Flat& b) {
  constexpr std::size_t kAutomatonSteps = 2'000;
  const auto says = [](const Set& plain) {
    return std::any_of(plain.begin(), plain.end(), [](const Node* schema) {
      return schema->find("pattern") || schema->find(schema_keyword::kNotPattern);
    });
  };
  if (!says(a.plain) || !says(b.plain)) return false;
  const StringRules left = string_rules(a.plain);
  StringRules all = string_rules(b.plain);
  if (failed()) return false;
  disjoint_steps_ += kAutomatonSteps;
  all.searches.insert(all.searches.end(), left.searches.begin(), left.searches.end());
  all.not_searches.insert(all.not_searches.end(), left.not_searches.begin(),
                          left.not_searches.end());
  all.length = {};
  all.not_texts.clear();
  all.maybe = true;
  const auto states = automaton(all, document_.root());
  if (!states) forgive();
  return states && states->empty();
}

bool JsonSchema::disjoint_objects(const Flat& a, const Flat& b, int depth) {
  auto needed = required_names(a.plain);
  for (const std::string& name : required_names(b.plain)) needed.insert(name);
  for (const std::string& name : needed) {
    const auto left = member_schemas(a.plain, name);
    const auto right = member_schemas(b.plain, name);
    if (failed()) return false;
    if (!left || !right) continue;
    if (disjoint(*left, *right, depth + 1)) return true;
  }
  return false;
}

}  // namespace troupe
