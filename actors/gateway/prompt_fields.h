#pragma once

#include <vector>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"
#include "runtime/generation.h"

namespace troupe {

/// Prompts of a field that is a text, a list of token ids, or a list of either.
std::vector<Prompt> read_prompts(FieldReader& fields, const ModelFacts& model, const char* name);
/// How much of each is taken, and whose turn it is: truncate_prompt_tokens, priority.
void read_prompt_handling(FieldReader& fields, GenerationRequest& out);

}  // namespace troupe
