#include "actors/gateway/prompt_fields.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/key_share.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

/// One prompt: a text or ids.
void read_prompt(FieldReader& fields, const ModelFacts& model, const std::string& name,
                 const json& value, Prompt& out) {
  if (value.is_string()) {
    if (!model.has_tokenizer) {
      return fields.fail(name, name + " must be token ids: this model has no tokenizer.");
    }
    out = value.get<std::string>();
    return;
  }
  std::vector<TokenId> ids;
  if (!read_token_ids(value, ids)) {
    const bool ids_meant = value.is_array() && !value.empty() && value.front().is_number();
    return fields.fail(
        name, name + (ids_meant ? " holds something that is not a token id."
                                : " must be a string, a list of token ids, or a list of either."));
  }
  out = std::move(ids);
}

}  // namespace

std::vector<Prompt> read_prompts(FieldReader& fields, const ModelFacts& model, const char* name) {
  const std::string field = name;
  std::vector<Prompt> prompts;
  const json* value = fields.find(name);
  if (value == nullptr) {
    fields.fail(field, field + " is missing.");
    return prompts;
  }
  const bool several = value->is_array() && !value->empty() && !value->front().is_number();
  if (!several) {
    read_prompt(fields, model, field, *value, prompts.emplace_back());
    return prompts;
  }
  if (value->size() > limits::kPromptsMax) {
    fields.fail(field, field + " must hold at most " + std::to_string(limits::kPromptsMax) +
                           " prompts; send the rest in another request.");
    return prompts;
  }
  for (const json& item : *value) read_prompt(fields, model, field, item, prompts.emplace_back());
  return prompts;
}

void read_prompt_handling(FieldReader& fields, GenerationRequest& out) {
  std::optional<std::int64_t> priority;
  fields.integer("priority", -kPriorityMax, kPriorityMax, priority);
  if (priority) out.priority = static_cast<std::int32_t>(*priority);
  std::optional<std::int64_t> kept;
  fields.integer("truncate_prompt_tokens", -1, std::numeric_limits<std::int64_t>::max(), kept);
  if (kept == 0) {
    fields.fail("truncate_prompt_tokens",
                "truncate_prompt_tokens must be at least 1, or -1 for as many as fit.");
  }
  out.truncate_prompt_tokens = kept.value_or(0);
}

}  // namespace troupe
