#include "actors/gateway/answer_format.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/json_extent.h"
#include "model/grammar/grammar_writer.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

/// Writes the grammar of one of the fields, and notes which one it was.
class FormatReader {
 public:
  FormatReader(FieldReader& fields, GenerationRequest& out, bool writes)
      : fields_(fields), out_(out), writes_(writes) {}
  /// The field; empty: none.
  std::string taken() const { return top_of(taken_); }

  /// A schema as an object, `text` as it was written, or as a text that holds one.
  void schema(const std::string& field, const json& value, std::string_view text) {
    if (value.is_string()) return write(field, GrammarWriter(), value.get<std::string>());
    if (!value.is_object() && !value.is_boolean())
      return fail(field, "must be a JSON schema, as an object or as a text.");
    write(field, GrammarWriter(), text);
  }
  void any_object(const std::string& field) {
    if (!writes_) return note(field);
    GrammarWriter writer;
    const std::string root = writer.json_object();
    take(field, std::move(writer), root);
  }
  void regex(const std::string& field, const json& value) {
    if (!value.is_string()) return fail(field, "must be a regular expression.");
    if (!writes_) return note(field);
    GrammarWriter writer;
    const auto root = writer.regex(value.get<std::string>());
    if (!root.ok()) return fields_.fail(top_of(field), field + ": " + root.error().message);
    take(field, std::move(writer), *root);
  }
  void choice(const std::string& field, const json& value) {
    std::vector<std::string> texts;
    for (const json& text : value.is_array() ? value : json::array())
      if (text.is_string() && !text.empty()) texts.push_back(text.get<std::string>());
    if (texts.empty() || texts.size() != value.size())
      return fail(field, "must be a list of texts, one at least.");
    if (!writes_) return note(field);
    GrammarWriter writer;
    const std::string root = writer.choice(texts);
    take(field, std::move(writer), root);
  }
  void grammar(const std::string& field, const json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      return fail(field, "must be a grammar in EBNF.");
    note(field);
    out_.grammar = value.get<std::string>();
  }
  /// The format is of the whole answer, its thought too.
  void of_thought(const std::string& field) {
    of_thought_ = field;
    out_.grammar_in_thought = true;
  }
  void finish() {
    if (taken_.empty() && !of_thought_.empty())
      fail(of_thought_, "makes sense only with a format of the answer.");
  }
  void fail(const std::string& field, const std::string& message) {
    fields_.fail(top_of(field), field + " " + message);
  }

 private:
  static std::string top_of(const std::string& field) { return field.substr(0, field.find('.')); }

  void write(const std::string& field, GrammarWriter writer, std::string_view schema) {
    if (!writes_) return note(field);
    const auto root = writer.json_schema(schema);
    if (!root.ok()) return fields_.fail(top_of(field), field + ": " + root.error().message);
    take(field, std::move(writer), *root);
  }
  void take(const std::string& field, GrammarWriter writer, const std::string& root) {
    note(field);
    out_.grammar = std::move(writer).finish(root);
  }
  void note(const std::string& field) {
    if (!taken_.empty())
      fields_.fail(top_of(field), field + " cannot be used together with " + taken_ + ".");
    taken_ = field;
    out_.grammar_field = field;
  }

  FieldReader& fields_;
  GenerationRequest& out_;
  const bool writes_;
  std::string taken_, of_thought_;
};

void read_response_format(FieldReader& fields, FormatReader& formats) {
  constexpr const char* kName = "response_format";
  const json* value = fields.find(kName);
  if (value == nullptr) return;
  const json type = value->is_object() ? value->value("type", json()) : json();
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    return formats.fail(kName, "must have the type text, json_object or json_schema.");
  const std::string text = fields.text_of(kName);
  // json_schema: {"json_schema": {"name": ..., "schema": ...}}; others have the schema at its side.
  const json* holder = value;
  std::string_view holder_text = text;
  if (type == "json_schema" && value->contains("json_schema")) {
    holder = &(*value)["json_schema"];
    holder_text = json_member(text, "json_schema");
  }
  if (!holder->is_object()) return formats.fail(kName, "has a json_schema that is no object.");
  const std::string field =
      std::string(kName) + (holder == value ? "" : ".json_schema") + ".schema";
  if (holder->contains("schema") && !(*holder)["schema"].is_null())
    return formats.schema(field, (*holder)["schema"], json_member(holder_text, "schema"));
  if (type == "json_schema") return formats.fail(kName, "has no json_schema.schema.");
  formats.any_object(kName);
}

/// vLLM's object: one of them, hints for its own engines, and whether what this or another field
/// asks for is of the thought, too (vLLM has a flag of this name).
void read_structured_outputs(FieldReader& fields, FormatReader& formats) {
  constexpr const char* kName = "structured_outputs";
  const json* value = fields.find(kName);
  if (value == nullptr) return;
  if (!value->is_object()) return formats.fail(kName, "must be an object.");
  const std::string text = fields.text_of(kName);
  bool any = false;
  for (const auto& [name, wanted] : value->items()) {
    const std::string field = std::string(kName) + "." + name;
    if (name == "enable_in_reasoning" && wanted.is_boolean()) {
      any = true;
      if (wanted == true) formats.of_thought(field);
      continue;
    }
    if (wanted.is_null() || wanted == false || name == "disable_fallback") continue;
    any = true;
    if (name == "json")
      formats.schema(field, wanted, json_member(text, name));
    else if (name == "json_object" && wanted == true)
      formats.any_object(field);
    else if (name == "regex")
      formats.regex(field, wanted);
    else if (name == "choice")
      formats.choice(field, wanted);
    else if (name == "grammar")
      formats.grammar(field, wanted);
    else if (name == "enable_in_reasoning")
      formats.fail(field, "must be true or false.");
    else
      formats.fail(field, "is not supported; leave it out.");
  }
  if (!any) formats.fail(kName, "must have one of json, json_object, regex, choice and grammar.");
}

void read_guided(FieldReader& fields, FormatReader& formats) {
  if (const json* value = fields.find("guided_json"))
    formats.schema("guided_json", *value, fields.text_of("guided_json"));
  if (const json* value = fields.find("guided_regex")) formats.regex("guided_regex", *value);
  if (const json* value = fields.find("guided_choice")) formats.choice("guided_choice", *value);
  if (const json* value = fields.find("guided_grammar")) formats.grammar("guided_grammar", *value);
}

/// What SGLang and llama.cpp call the same. Clients of theirs send an empty text for nothing.
void read_names_of_others(FieldReader& fields, FormatReader& formats) {
  const auto find = [&](const char* name) {
    const json* value = fields.find(name);
    return value == nullptr || *value == "" ? nullptr : value;
  };
  if (const json* value = find("json_schema"))
    formats.schema("json_schema", *value, fields.text_of("json_schema"));
  if (const json* value = find("regex")) formats.regex("regex", *value);
  for (const char* name : {"ebnf", "grammar"})
    if (const json* value = find(name)) formats.grammar(name, *value);
}

void read_ids(FieldReader& fields, const char* name, bool may_be_empty, std::vector<TokenId>& out) {
  const json* value = fields.find(name);
  if (value == nullptr || (may_be_empty && value->is_array() && value->empty())) return;
  if (value->is_array() && value->empty())
    return fields.fail(name, std::string(name) + " is empty, so that no token may come.");
  if (!read_token_ids(*value, out) || out.size() > limits::kTokenListMax)
    fields.fail(name, std::string(name) + " must be a list of at most " +
                          std::to_string(limits::kTokenListMax) + " token ids.");
}

/// OpenAI's map of ids, as texts, to numbers.
void read_bias(FieldReader& fields, std::vector<TokenBias>& out) {
  constexpr const char* kName = "logit_bias";
  const json* value = fields.find(kName);
  if (value == nullptr) return;
  const std::string most = std::to_string(static_cast<int>(limits::kBiasMax));
  if (!value->is_object() || value->size() > limits::kTokenListMax)
    return fields.fail(kName, "logit_bias must be an object of at most " +
                                  std::to_string(limits::kTokenListMax) + " tokens.");
  for (const auto& [id, bias] : value->items()) {
    const bool digits =
        !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!digits)
      return fields.fail(kName,
                         "logit_bias has '" + id.substr(0, 32) + "', which is not a token id.");
    if (!bias.is_number() || !(bias.get<double>() >= -100 && bias.get<double>() <= 100))
      return fields.fail(kName, "logit_bias must have numbers from -" + most + " to " + most + ".");
    out.push_back({static_cast<TokenId>(std::stol(id)), bias.get<float>()});
  }
}

}  // namespace

std::string read_answer_format(FieldReader& fields, const ModelFacts& model,
                               GenerationRequest& out) {
  FormatReader formats(fields, out, model.writes_grammars);
  read_response_format(fields, formats);
  read_structured_outputs(fields, formats);
  read_guided(fields, formats);
  read_names_of_others(fields, formats);
  formats.finish();
  if (!formats.taken().empty() && !model.has_tokenizer)
    fields.fail("response_format",
                "An answer's format cannot be asked for: this model has no tokenizer.");
  return formats.taken();
}

void read_token_rules(FieldReader& fields, GenerationRequest& out) {
  std::optional<std::int64_t> min_tokens;
  fields.integer("min_tokens", 0, std::numeric_limits<std::uint32_t>::max(), min_tokens);
  if (min_tokens) out.min_tokens = static_cast<std::uint32_t>(*min_tokens);
  read_ids(fields, "stop_token_ids", true, out.stop_token_ids);
  read_ids(fields, "allowed_token_ids", false, out.allowed_token_ids);
  fields.texts("bad_words", limits::kBadWordsMax, limits::kStopStringBytesMax, out.bad_words);
  read_bias(fields, out.logit_bias);
}

}  // namespace troupe
