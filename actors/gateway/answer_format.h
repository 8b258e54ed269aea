#pragma once

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"
#include "runtime/generation.h"

namespace troupe {

/// What the answer must look like: `response_format` as OpenAI has it, `structured_outputs` and
/// `guided_json|regex|choice|grammar` as vLLM does, `json_schema`, `regex` and `ebnf` as SGLang,
/// `grammar` as llama.cpp. At most one of them; the request's grammar is written from it. What a
/// schema or a regular expression asks for and a grammar cannot have fails by name. Returns the
/// field's name; empty: there is none.
std::string read_answer_format(FieldReader& fields, const ModelFacts& model,
                               GenerationRequest& out);

/// What an answer's tokens must be: min_tokens, stop_token_ids, allowed_token_ids, bad_words and
/// logit_bias. Ids are checked where the vocabulary is known.
void read_token_rules(FieldReader& fields, GenerationRequest& out);

}  // namespace troupe
