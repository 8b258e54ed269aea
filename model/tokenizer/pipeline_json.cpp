#include "model/tokenizer/pipeline_json.h"

#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "model/tokenizer/json_fields.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kNormalizers = "NFC, NFD, NFKC, NFKD, Replace, Prepend and Sequence";
/// Digits asks Rust's is_numeric(), which knows the digits that Unicode 17 has brought, those of
/// Tolong Siki; expressions know 16.
constexpr std::string_view kNumeric = "[\\p{N}\U00011DE0-\U00011DE9]";
constexpr std::string_view kPreTokenizers = "Split, Digits, ByteLevel at the end, and Sequence";
constexpr std::string_view kPostProcessors = "TemplateProcessing, ByteLevel and Sequence";

class StageReader {
 public:
  StageReader(const Json& root, TokenizerParts& parts) : root_(root), parts_(parts) {}

  Status run() {
    Status status = read_normalizer(child(root_, "normalizer"), "normalizer");
    if (status) status = read_stage(child(root_, "pre_tokenizer"), "pre_tokenizer");
    if (!status) return status;
    if (!byte_level_) return unsupported_field("pre_tokenizer", "has no ByteLevel", kPreTokenizers);
    return read_decoder(child(root_, "decoder"), "decoder");
  }

 private:
  /// Members of a Sequence, or the error.
  static Result<const Json*> members(const Json& stage, const char* key, const std::string& where) {
    const Json& list = child(stage, key);
    if (!list.is_array()) return field_error(where + "." + key, "should be a list");
    return &list;
  }

  Status read_normalizer(const Json& stage, const std::string& where) {
    if (stage.is_null()) return {};
    if (parts_.normalizer.stages() == limits::kTokenizerStagesMax) return too_many(where);
    const std::string type = type_of(stage);
    if (type == "Sequence") {
      const Result<const Json*> list = members(stage, "normalizers", where);
      if (!list) return list.error();
      for (std::size_t i = 0; i < (*list)->size(); ++i) {
        const Status status =
            read_normalizer((**list)[i], where + ".normalizers[" + std::to_string(i) + "]");
        if (!status) return status;
      }
      return {};
    }
    constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                  {"NFD", NormalForm::kNfd},
                                                                  {"NFKC", NormalForm::kNfkc},
                                                                  {"NFKD", NormalForm::kNfkd}};
    for (const auto& [name, form] : kForms) {
      if (type != name) continue;
      parts_.normalizer.add(form);
      return {};
    }
    JsonReader reader(stage, std::string(kTokenizerFile) + ": " + where);
    if (type == "Prepend") {
      const std::string prepend = reader.string("prepend");
      if (Status status = check_length(prepend, where + ".prepend"); !status) return status;
      parts_.normalizer.add(Normalizer::Prepend{prepend});
      return reader.status();
    }
    if (type != "Replace") {
      return unsupported_field(where, type.empty() ? "has no type" : "is " + in_quotes(type),
                               kNormalizers);
    }
    const Json& text = child(child(stage, "pattern"), "String");
    if (!text.is_string() || text == "") {
      return unsupported_field(where + ".pattern", "is no String", kNormalizers);
    }
    const auto from = text.get<std::string>();
    const std::string to = reader.string("content");
    Status status = check_length(from, where + ".pattern");
    if (status) status = check_length(to, where + ".content");
    if (!status) return status;
    parts_.normalizer.add(Normalizer::Replace{from, to});
    return reader.status();
  }

  static Error too_many(const std::string& where) {
    return field_error(where, "is one stage more than the " +
                                  std::to_string(limits::kTokenizerStagesMax) +
                                  " that a tokenizer may have");
  }

  static Status check_length(const std::string& text, const std::string& where) {
    if (text.size() <= limits::kStageTextBytesMax) return {};
    return field_error(where, "has " + std::to_string(text.size()) + " bytes, of at most " +
                                  std::to_string(limits::kStageTextBytesMax));
  }

  Status read_stage(const Json& stage, const std::string& where) {
    if (parts_.pre_tokenizer.stages() == limits::kTokenizerStagesMax) return too_many(where);
    const std::string type = type_of(stage);
    if (type == "Sequence") {
      const Json& stages = child(stage, "pretokenizers");
      if (!stages.is_array()) return field_error(where + ".pretokenizers", "should be a list");
      for (std::size_t i = 0; i < stages.size(); ++i) {
        const Status status =
            read_stage(stages[i], where + ".pretokenizers[" + std::to_string(i) + "]");
        if (!status) return status;
      }
      return {};
    }
    if (byte_level_) return unsupported_field(where, "follows ByteLevel", kPreTokenizers);
    if (type == "Split") return read_split(stage, where);
    if (type == "ByteLevel") return read_byte_level(stage, where);
    if (type == "Digits") {
      const bool individual = child(stage, "individual_digits") == true;
      return add_split(std::string(kNumeric) + (individual ? "" : "+"), SplitBehavior::kIsolated,
                       false, where);
    }
    return unsupported_field(where, type.empty() ? "has no type" : "is " + in_quotes(type),
                             kPreTokenizers);
  }

  Status read_byte_level(const Json& stage, const std::string& where) {
    JsonReader reader(stage, std::string(kTokenizerFile) + ": " + where);
    const bool prefix_space = reader.boolean_or("add_prefix_space", true);
    const bool use_regex = reader.boolean_or("use_regex", true);
    if (!reader.ok()) return reader.status();
    byte_level_ = true;
    if (prefix_space) parts_.pre_tokenizer.add(PreTokenizer::PrefixSpace{});
    if (!use_regex) return {};
    return add_split(std::string(kGpt2Pattern), SplitBehavior::kIsolated, false, where);
  }

  Status read_split(const Json& stage, const std::string& where) {
    JsonReader reader(stage, std::string(kTokenizerFile) + ": " + where);
    const std::string behavior = reader.string("behavior");
    const bool invert = reader.boolean_or("invert", false);
    if (!reader.ok()) return reader.status();
    const Json& pattern = child(stage, "pattern");
    const Json& regex = child(pattern, "Regex");
    const Json& text = child(pattern, "String");
    if (!regex.is_string() && !(text.is_string() && text != "")) {
      return field_error(where + ".pattern", "should be an object with a Regex or a String");
    }
    std::string expression;
    if (regex.is_string()) {
      expression = regex.get<std::string>();
    } else {
      for (const char c : text.get_ref<const std::string&>()) {
        const bool ascii_symbol = c > 0 && !std::isalnum(static_cast<unsigned char>(c));
        if (ascii_symbol) expression += '\\';
        expression += c;
      }
    }
    constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
        {"Isolated", SplitBehavior::kIsolated},
        {"Removed", SplitBehavior::kRemoved},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    for (const auto& [name, value] : kBehaviors) {
      if (name == behavior) return add_split(expression, value, invert, where);
    }
    return unsupported_field(where + ".behavior", "is " + in_quotes(behavior), kPreTokenizers);
  }

  Status add_split(const std::string& expression, SplitBehavior behavior, bool invert,
                   const std::string& where) {
    Result<Pattern> pattern = Pattern::compile(expression);
    if (!pattern)
      return field_error(where + ".pattern", "cannot be used: " + pattern.error().message);
    parts_.pre_tokenizer.add(PreTokenizer::Split{std::move(*pattern), behavior, invert});
    return {};
  }

  Status read_decoder(const Json& decoder, const std::string& where) {
    const std::string type = type_of(decoder);
    if (type == "ByteLevel") return {};
    const Json& list = child(decoder, "decoders");
    // Fuse joins what is one text here.
    const bool fused = list.is_array() && list.size() == 2 && type_of(list[1]) == "Fuse";
    if (type == "Sequence" && list.is_array() && (list.size() == 1 || fused)) {
      return read_decoder(list[0], where + ".decoders[0]");
    }
    return unsupported_field(where, type.empty() ? "is missing" : "is " + in_quotes(type),
                             "the decoder ByteLevel");
  }

  const Json& root_;
  TokenizerParts& parts_;
  bool byte_level_ = false;
};

class ProcessorReader {
 public:
  explicit ProcessorReader(TokenizerParts& parts) : parts_(parts) {}

  Status read_processor(const Json& processor, const std::string& where) {
    const std::string type = type_of(processor);
    // ByteLevel only changes offsets here.
    if (processor.is_null() || type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return read_template(processor, where);
    const Json& members = child(processor, "processors");
    if (type != "Sequence" || !members.is_array()) {
      return unsupported_field(where, type.empty() ? "has no type" : "is " + in_quotes(type),
                               kPostProcessors);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Status status =
          read_processor(members[i], where + ".processors[" + std::to_string(i) + "]");
      if (!status) return status;
    }
    return {};
  }

  bool has_template() const { return has_template_; }

 private:
  Status read_template(const Json& processor, const std::string& where) {
    if (has_template_) return unsupported_field(where, "is a second template", kPostProcessors);
    has_template_ = true;
    const Json& pieces = child(processor, "single");
    if (!pieces.is_array()) return field_error(where + ".single", "should be a list");
    bool text_seen = false;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string piece_where = where + ".single[" + std::to_string(i) + "]";
      const Json& sequence = child(pieces[i], "Sequence");
      if (!sequence.is_null()) {
        if (child(sequence, "id") != "A" || text_seen) {
          return unsupported_field(piece_where, "is not the one sequence A", kPostProcessors);
        }
        text_seen = true;
        continue;
      }
      const Json& name = child(child(pieces[i], "SpecialToken"), "id");
      if (!name.is_string()) {
        return field_error(piece_where, "should be a Sequence or a SpecialToken");
      }
      const Status status = append_template_token(
          child(child(processor, "special_tokens"), name.get<std::string>().c_str()),
          text_seen ? parts_.suffix : parts_.prefix, piece_where);
      if (!status) return status;
    }
    if (!text_seen) return field_error(where + ".single", "should have the sequence A");
    return {};
  }

  Status append_template_token(const Json& token, std::vector<TokenId>& out,
                               const std::string& where) {
    const Json& ids = child(token, "ids");
    if (!ids.is_array()) {
      return field_error(where, "names a token that special_tokens does not give ids");
    }
    for (const Json& id : ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= parts_.tokens.size() ||
          !parts_.tokens.has(id.get<TokenId>())) {
        return field_error(where, "names a token with an id that no token has");
      }
      if (parts_.prefix.size() + parts_.suffix.size() == limits::kTemplateTokensMax) {
        return field_error(where, "is one token more than the " +
                                      std::to_string(limits::kTemplateTokensMax) +
                                      " that may be put around a text");
      }
      out.push_back(id.get<TokenId>());
    }
    return {};
  }

  TokenizerParts& parts_;
  bool has_template_ = false;
};

}  // namespace

Status read_text_stages(const nlohmann::json& root, TokenizerParts& parts) {
  return StageReader(root, parts).run();
}

Result<bool> read_post_processors(const nlohmann::json& root, TokenizerParts& parts) {
  ProcessorReader reader(parts);
  const Status status = reader.read_processor(child(root, "post_processor"), "post_processor");
  if (!status) return status.error();
  return reader.has_template();
}

}  // namespace troupe
