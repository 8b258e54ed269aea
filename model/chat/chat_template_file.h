#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// What a checkpoint says of how conversations are written.
struct ChatTemplateFile {
  std::string text;
  std::string tool_use;  ///< the template for conversations with tools, if there is one of its own
  /// bos_token, eos_token and the like, as tokenizer_config.json names them, or else
  /// special_tokens_map.json.
  std::vector<std::pair<std::string, std::string>> tokens;
};

/// The template is in chat_template.jinja, else in `chat_template` of chat_template.json, else of
/// tokenizer_config.json: a string, or a list of named ones; a GGUF file's is in its metadata.
/// kNotFound if there is none.
Result<ChatTemplateFile> load_chat_template(const std::filesystem::path& model);

}  // namespace troupe
