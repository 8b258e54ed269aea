#include "actors/gateway/continuation_fields.h"

#include <string>
#include <vector>

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kContinue = "continue_final_message";
constexpr const char* kAddPrompt = "add_generation_prompt";

/// Whether the last message says that the answer goes on with it.
bool read_prefix(FieldReader& fields, const json& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json prefix = messages[i].value("prefix", json());
    if (prefix.is_null() || prefix == false) continue;
    const std::string name = "messages[" + std::to_string(i) + "].prefix";
    if (!prefix.is_boolean()) {
      fields.fail("messages", name + " must be true or false.");
    } else if (i + 1 < messages.size()) {
      fields.fail("messages", name + " makes sense only in the last message.");
    } else {
      return true;
    }
    return false;
  }
  return false;
}

}  // namespace

void read_continuation(FieldReader& fields, ApiRequest& out) {
  GenerationRequest& request = out.prompts.front();
  fields.boolean(kAddPrompt, request.add_generation_prompt);
  fields.boolean(kContinue, request.continue_final_message);
  const bool adds = fields.find(kAddPrompt) != nullptr && request.add_generation_prompt;
  if (fields.failed()) return;
  if (request.continue_final_message && adds)
    return fields.fail(kContinue,
                       "continue_final_message and add_generation_prompt cannot both be true.");
  if (read_prefix(fields, *fields.find("messages"))) request.continue_final_message = true;
  const auto& conversation = std::get<std::vector<ChatMessage>>(request.prompt);
  if (request.continue_final_message && conversation.back().role != "assistant")
    fields.fail("messages",
                "messages must end with one of role assistant, with which the answer goes on.");
}

}  // namespace troupe
