#include "model/chat/chat_template_file.h"

#include <nlohmann/json.hpp>

#include "model/gguf/gguf.h"
#include "model/json_reader.h"
#include "model/tokenizer/gguf_text.h"
#include "model/tokenizer/special_tokens.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// The object in a JSON file; an empty one if there is no such file.
Result<nlohmann::json> read_object(const std::string& path) {
  const Result<std::string> text = read_text_file(path, limits::kConfigBytesMax);
  if (!text && text.error().code == ErrorCode::kNotFound) return nlohmann::json::object();
  if (!text) return text.error();
  Result<nlohmann::json> parsed = parse_json(*text, path);
  if (parsed && !parsed->is_object()) return corrupt(path + " should be a JSON object");
  return parsed;
}

/// `chat_template`: a string, or a list of {name, template}.
Status read_template(const nlohmann::json& config, const std::string& path, ChatTemplateFile& out) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) {
    out.text = found->get<std::string>();
    return {};
  }
  if (!found->is_array())
    return corrupt(path + ": chat_template should be a string or a list of named templates");
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_object()) continue;
    const nlohmann::json name = entry.value("name", nlohmann::json());
    const nlohmann::json text = entry.value("template", nlohmann::json());
    if (!text.is_string()) continue;
    if (name == "default") out.text = text.get<std::string>();
    if (name == "tool_use") out.tool_use = text.get<std::string>();
  }
  if (out.text.empty()) return corrupt(path + ": chat_template has no template named \"default\"");
  return {};
}

Result<ChatTemplateFile> load_from_gguf(const std::string& path) {
  const auto opened = open_gguf(path);
  if (!opened) return opened.error();
  auto out = gguf_chat_template(opened->header);
  if (out) return out;
  return Error{out.error().code, path + ": " + out.error().message};
}

/// Beside chat_template.jinja, a file each, as transformers writes them since 4.51.
Result<ChatTemplateFile> with_named_templates(const std::filesystem::path& dir,
                                              ChatTemplateFile out) {
  const std::string path = (dir / "additional_chat_templates" / "tool_use.jinja").string();
  Result<std::string> text = read_text_file(path, limits::kConfigBytesMax);
  if (text)
    out.tool_use = std::move(*text);
  else if (text.error().code != ErrorCode::kNotFound)
    return text.error();
  return out;
}

Result<ChatTemplateFile> load_from_folder(const std::filesystem::path& dir) {
  ChatTemplateFile out;
  const std::string config_path = (dir / "tokenizer_config.json").string();
  const Result<nlohmann::json> config = read_object(config_path);
  if (!config) return config.error();
  const Result<nlohmann::json> map = read_object((dir / "special_tokens_map.json").string());
  if (!map) return map.error();
  for (const char* key : kSpecialTokenKeys) {
    std::string text = token_text(config->value(key, nlohmann::json())).value_or("");
    if (text.empty()) text = token_text(map->value(key, nlohmann::json())).value_or("");
    if (!text.empty()) out.tokens.emplace_back(key, std::move(text));
  }

  Result<std::string> own =
      read_text_file((dir / "chat_template.jinja").string(), limits::kConfigBytesMax);
  if (!own && own.error().code != ErrorCode::kNotFound) return own.error();
  if (own) {
    out.text = std::move(*own);
    return with_named_templates(dir, std::move(out));
  }
  const std::string json_path = (dir / "chat_template.json").string();
  const Result<nlohmann::json> json = read_object(json_path);
  if (!json) return json.error();
  if (const Status status = read_template(*json, json_path, out); !status) return status.error();
  if (out.text.empty())
    if (const Status status = read_template(*config, config_path, out); !status)
      return status.error();
  if (out.text.empty()) {
    return not_found(config_path +
                     " has no chat_template: this model cannot chat, only complete text");
  }
  return out;
}

}  // namespace

Result<ChatTemplateFile> load_chat_template(const std::filesystem::path& model) {
  const auto gguf = find_gguf(model.string());
  if (!gguf) return gguf.error();
  return *gguf ? load_from_gguf(**gguf) : load_from_folder(model);
}

}  // namespace troupe
