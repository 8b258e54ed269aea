// What a schema object says: its keywords, checked, and the schemas that it needs or offers.

#include <algorithm>
#include <array>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

enum class Shape : unsigned char {
  kCount,
  kNumber,
  kPositive,
  kText,
  kSchema,
  kSchemas,
  kSchemaMap,
  kTexts,
  kList,
  kAny,
  kItems,
  kTypes,
  kFlag,
  kBound,
};

struct Keyword {
  std::string_view name;
  Shape shape;
};

/// About the value itself.
constexpr auto kPlain = std::to_array<Keyword>({
    {"additionalItems", Shape::kSchema},
    {"additionalProperties", Shape::kSchema},
    {"const", Shape::kAny},
    {"contains", Shape::kSchema},
    {"enum", Shape::kList},
    {"exclusiveMaximum", Shape::kBound},
    {"exclusiveMinimum", Shape::kBound},
    {"format", Shape::kText},
    {"items", Shape::kItems},
    {"maxContains", Shape::kCount},
    {"maxItems", Shape::kCount},
    {"maxLength", Shape::kCount},
    {"maxProperties", Shape::kCount},
    {"maximum", Shape::kNumber},
    {"minContains", Shape::kCount},
    {"minItems", Shape::kCount},
    {"minLength", Shape::kCount},
    {"minProperties", Shape::kCount},
    {"minimum", Shape::kNumber},
    {"multipleOf", Shape::kPositive},
    {"pattern", Shape::kText},
    {"patternProperties", Shape::kSchemaMap},
    {"prefixItems", Shape::kSchemas},
    {"properties", Shape::kSchemaMap},
    {"propertyNames", Shape::kSchema},
    {"required", Shape::kTexts},
    {"type", Shape::kTypes},
    {"uniqueItems", Shape::kFlag},
});

/// Which need other schemas.
constexpr auto kInPlace = std::to_array<std::string_view>(
    {"$ref", "allOf", "anyOf", "dependencies", "dependentRequired", "dependentSchemas", "if", "not",
     "oneOf", "unevaluatedItems", "unevaluatedProperties"});

constexpr auto kUnsupported = std::to_array<std::string_view>({"$dynamicRef", "$recursiveRef"});

const Keyword* find_plain(std::string_view key) {
  const auto* at =
      std::lower_bound(kPlain.begin(), kPlain.end(), key,
                       [](const Keyword& k, std::string_view n) { return k.name < n; });
  return at != kPlain.end() && at->name == key ? at : nullptr;
}

using Kind = JsonNode::Kind;

bool is_schema(const JsonNode& node) { return node.is(Kind::kObject) || node.is(Kind::kBoolean); }

bool all_of(const JsonNode& list, bool (*test)(const JsonNode&)) {
  return std::all_of(list.items.begin(), list.items.end(),
                     [test](const JsonNode* item) { return test(*item); });
}

bool is_text(const JsonNode& node) { return node.is(Kind::kString); }

/// What a keyword's value must be; empty if it is.
std::string_view wrong(Shape shape, const JsonNode& value) {
  const auto number = [&] {
    return value.is(Kind::kNumber) ? Decimal::parse(value.text) : Decimal(-1);
  };
  switch (shape) {
    case Shape::kCount:
      return number().is_integer() && !number().negative() ? "" : "a whole number, 0 or more";
    case Shape::kNumber:
      return value.is(Kind::kNumber) ? "" : "a number";
    case Shape::kBound:
      return value.is(Kind::kNumber) || value.is(Kind::kBoolean) ? "" : "a number";
    case Shape::kPositive:
      return number() > Decimal() ? "" : "a number above 0";
    case Shape::kText:
      return is_text(value) ? "" : "a string";
    case Shape::kFlag:
      return value.is(Kind::kBoolean) ? "" : "true or false";
    case Shape::kSchema:
      return is_schema(value) ? "" : "a schema";
    case Shape::kItems:
      return is_schema(value) || (value.is(Kind::kArray) && all_of(value, is_schema)) ? ""
                                                                                      : "a schema";
    case Shape::kSchemas:
      return value.is(Kind::kArray) && all_of(value, is_schema) ? "" : "a list of schemas";
    case Shape::kSchemaMap:
      return value.is(Kind::kObject) && all_of(value, is_schema) ? "" : "an object of schemas";
    case Shape::kTexts:
      return value.is(Kind::kArray) && all_of(value, is_text) ? "" : "a list of strings";
    case Shape::kList:
      return value.is(Kind::kArray) ? "" : "a list";
    case Shape::kTypes:
      return is_text(value) || (value.is(Kind::kArray) && all_of(value, is_text))
                 ? ""
                 : "a type's name, or a list of them";
    case Shape::kAny:
      break;
  }
  return "";
}

}  // namespace

void JsonSchema::check_keyword(const Node& schema, std::string_view key, const Node& value) {
  const Keyword* known = find_plain(key);
  if (!known) return;
  const auto too_long = [](const Node& node) {
    return node.is(Kind::kNumber) && node.text.size() > kDigitsMax;
  };
  const bool listed = key == "enum" || key == "const";
  if ((too_long(value) && (listed || known->shape != Shape::kAny)) ||
      (key == "enum" && std::any_of(value.items.begin(), value.items.end(),
                                    [&](const Node* one) { return too_long(*one); })))
    return fail(schema, "\"" + std::string(key) + "\" has too many digits.");
  if (const auto expected = wrong(known->shape, value); !expected.empty())
    fail(schema, "\"" + std::string(key) + "\" must be " + std::string(expected) + ".");
}

void JsonSchema::check_schema(const Node& schema) {
  if (!is_schema(schema)) fail(schema, "a schema must be an object, true or false.");
}

const JsonSchema::Parts& JsonSchema::parts(const Node& schema) {
  const auto [at, added] = parts_.try_emplace(&schema);
  if (!added) return at->second;
  Parts out;
  check_schema(schema);
  if (!failed()) take_apart(schema, out);
  // What was made while looking may have moved the table.
  return parts_[&schema] = std::move(out);
}

void JsonSchema::take_apart(const Node& schema, Parts& out) {
  if (schema.is(Kind::kBoolean)) {
    out.never = !schema.boolean;
    return;
  }
  Node& plain = make(Kind::kObject, schema);
  for (std::size_t i = 0; i < schema.keys.size() && !failed(); ++i)
    add_keyword(schema, i, plain, out);
  const auto branch = [&](const char* key) { return schema.find(key); };
  if (const Node* condition = branch("if"); condition && (branch("then") || branch("else"))) {
    check_schema(*condition);
    const Node& yes =
        branch("then") ? made(schema, {{"allOf", &made_list(schema, {condition, branch("then")})}})
                       : *condition;
    const Node& inverse = made_not(*condition);
    const Node& no = branch("else")
                         ? made(schema, {{"allOf", &made_list(schema, {&inverse, branch("else")})}})
                         : inverse;
    out.groups.push_back(&made_group(schema, "anyOf", made_list(schema, {&yes, &no})));
  }
  if (plain.keys.empty()) return;
  JsonDocument::seal(plain);
  out.plain = &plain;
  parts_[&plain].plain = &plain;
}

/// Puts a keyword where it belongs. Keywords that the specification does not know, and those that
/// only describe, say nothing about values.
void JsonSchema::add_keyword(const Node& schema, std::size_t i, Node& plain, Parts& out) {
  const std::string& key = schema.keys[i];
  const Node& item = *schema.items[i];
  if (std::find(kUnsupported.begin(), kUnsupported.end(), key) != kUnsupported.end())
    return unsupported(schema, key);
  if (key.starts_with("unevaluated")) {
    // Beside keywords that look into no other schema, it is what "additional..." is.
    for (const char* other :
         {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "contains"})
      if (schema.find(other))
        return unsupported(schema, key, "beside \"" + std::string(other) + "\"");
    const bool members = key == "unevaluatedProperties";
    if (!members && key != "unevaluatedItems") return;
    if (schema.find(members ? "additionalProperties" : "items")) return;
    check_schema(item);
    return JsonDocument::add(plain, members ? "additionalProperties" : "items", item);
  }
  if (key == "$ref") {
    if (!item.is(Kind::kString)) return fail(schema, "\"$ref\" must be a string.");
    if (const Node* found = target(schema, item.text)) out.also.push_back(found);
    return;
  }
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    if (!item.is(Kind::kArray) || item.items.empty())
      return fail(schema, "\"" + key + "\" must be a list of schemas.");
    for (const Node* one : item.items) check_schema(*one);
    if (key == "allOf" || item.items.size() == 1)
      out.also.insert(out.also.end(), item.items.begin(), item.items.end());
    else
      out.groups.push_back(&made_group(schema, key.c_str(), item));
    return;
  }
  if (key == "not") {
    check_schema(item);
    if (failed()) return;
    const Set rest = negated(item, 0);
    if (rest.empty())
      out.never = true;
    else if (rest.size() == 1)
      out.also.push_back(rest.front());
    else
      out.groups.push_back(&made_group(schema, "anyOf", made_list(schema, rest)));
    return;
  }
  if (key == "dependencies" || key == "dependentRequired" || key == "dependentSchemas") {
    if (!item.is(Kind::kObject)) return fail(schema, "\"" + key + "\" must be an object.");
    for (std::size_t k = 0; k < item.keys.size(); ++k) {
      // Without the member, or with it and what it asks for.
      const Node& name = made_text(schema, item.keys[k]);
      const Node& never = make(Kind::kBoolean, schema);
      const Node& without = made(schema, {{"properties", &made(schema, {{item.keys[k], &never}})}});
      std::vector<std::pair<std::string, const Node*>> with = {
          {"type", &made_text(schema, "object")}, {"required", &made_list(schema, {&name})}};
      const Node* needed = item.items[k];
      if (needed->is(Kind::kArray)) needed = &made(schema, {{"required", needed}});
      with.emplace_back("allOf", &made_list(schema, {needed}));
      out.groups.push_back(
          &made_group(schema, "anyOf", made_list(schema, {&without, &made(schema, with)})));
    }
    return;
  }
  check_keyword(schema, key, item);
  if (key == "exclusiveMinimum" || key == "exclusiveMaximum") {
    // Draft 4: true makes its neighbour exclusive.
    if (item.is_true()) {
      const Node* bound = schema.find(key == "exclusiveMinimum" ? "minimum" : "maximum");
      if (bound) JsonDocument::add(plain, key, *bound);
    }
    if (item.is(Kind::kBoolean)) return;
  }
  if (find_plain(key)) JsonDocument::add(plain, key, item);
}

/// A schema that needs itself for the same value, however far around, would never be decided.
void JsonSchema::check_loops(const Node& schema, int depth) {
  constexpr int kChainMax = 1'000;
  const auto [at, added] = loops_checked_.try_emplace(&schema, false);
  if (!added) {
    if (!at->second) fail(schema, "\"$ref\" leads back here without a step into the value.");
    return;
  }
  if (depth > kChainMax) return fail(schema, "a chain of references is too long.");
  const Parts found = parts(schema);
  for (const Node* next : found.also) {
    if (failed()) return;
    check_loops(*next, depth + 1);
  }
  for (const Node* group : found.groups) {
    for (const Node* next : group->items.front()->items) {
      if (failed()) return;
      check_loops(*next, depth + 1);
    }
  }
  loops_checked_[&schema] = true;
}

bool JsonSchema::constrains(std::string_view key) {
  const auto in = [key](const auto& list) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  return find_plain(key) || in(kInPlace) || in(kUnsupported);
}

unsigned JsonSchema::type_mask(const Node& plain) {
  unsigned mask = kAllTypes;
  if (const Node* own = plain.find(schema_keyword::kTypes))
    mask &= static_cast<unsigned>(own->text.front());
  const Node* types = plain.find("type");
  if (!types) return mask;
  unsigned named = 0;
  const auto add = [&](const Node& type) {
    if (type.text == "null")
      named |= kNull;
    else if (type.text == "boolean")
      named |= kBoolean;
    else if (type.text == "integer")
      named |= kInteger;
    else if (type.text == "number")
      named |= kInteger | kFraction;
    else if (type.text == "string")
      named |= kString;
    else if (type.text == "array")
      named |= kArray;
    else if (type.text == "object")
      named |= kObject;
    else
      fail(plain, "there is no type \"" + type.text + "\".");
  };
  if (types->is(Kind::kString)) add(*types);
  for (const Node* type : types->items) add(*type);
  return mask & named;
}

}  // namespace troupe
