#include "model/tokenizer/gguf_text.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {
namespace {

std::string key(const char* name) { return std::string("tokenizer.ggml.") + name; }

/// None: it is absent, or no 32-bit number.
std::optional<TokenId> token(const GgufHeader& header, const char* name) {
  const auto* told = header.get<std::int64_t>(key(name));
  if (!told || *told < 0 || *told > INT32_MAX) return std::nullopt;
  return static_cast<TokenId>(*told);
}

std::optional<bool> flag(const GgufHeader& header, const char* name) {
  const auto* told = header.get<bool>(key(name));
  return told ? std::optional(*told) : std::nullopt;
}

/// Empty: it is absent, or no list of strings.
std::vector<std::string> texts(const GgufHeader& header, const char* name) {
  const auto* told = header.get<std::vector<std::string>>(key(name));
  return told ? *told : std::vector<std::string>();
}

constexpr std::pair<const char*, const char*> kTemplateTokens[] = {
    {"bos_token", "bos_token_id"},
    {"eos_token", "eos_token_id"},
    {"unk_token", "unknown_token_id"},
    {"pad_token", "padding_token_id"},
};

}  // namespace

Result<GgufVocabulary> gguf_vocabulary(const GgufHeader& header) {
  const auto* model = header.get<std::string>(key("model"));
  if (!model || *model == "no_vocab") return not_found("the file has no vocabulary");
  if (*model != "gpt2")
    return invalid_argument("tokenizer.ggml.model is \"" + model->substr(0, 64) +
                            "\", but byte-level BPE, \"gpt2\", is the one supported");
  GgufVocabulary out;
  if (const auto* pre = header.get<std::string>(key("pre"))) out.pre = *pre;
  out.tokens = texts(header, "tokens");
  out.merges = texts(header, "merges");
  if (const auto* types = header.get<std::vector<std::int64_t>>(key("token_type")))
    for (const std::int64_t type : *types)
      out.types.push_back(type == static_cast<std::int32_t>(type) ? static_cast<std::int32_t>(type)
                                                                  : 0);
  out.bos = token(header, "bos_token_id");
  out.eos = token(header, "eos_token_id");
  out.add_bos = flag(header, "add_bos_token");
  out.add_eos = flag(header, "add_eos_token");
  return out;
}

Result<ChatTemplateFile> gguf_chat_template(const GgufHeader& header) {
  const auto* text = header.get<std::string>("tokenizer.chat_template");
  if (!text)
    return not_found("the metadata has no tokenizer.chat_template: this model cannot chat, only "
                     "complete text");
  ChatTemplateFile out;
  out.text = *text;
  if (const auto* tool_use = header.get<std::string>("tokenizer.chat_template.tool_use"))
    out.tool_use = *tool_use;
  const std::vector<std::string> tokens = texts(header, "tokens");
  for (const auto& [name, id_key] : kTemplateTokens)
    if (const auto id = token(header, id_key); id && static_cast<std::size_t>(*id) < tokens.size())
      out.tokens.emplace_back(name, tokens[static_cast<std::size_t>(*id)]);
  return out;
}

}  // namespace troupe
