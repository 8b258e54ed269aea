#pragma once

#include <array>

namespace troupe {

/// Fields that requests of every form have, with the same names and values; most are vLLM's and
/// SGLang's.
inline constexpr std::array kSharedFields{
    "model",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "ignore_eos",
    "min_tokens",
    "logit_bias",
    "presence_penalty",
    "bad_words",
    "frequency_penalty",
    "stop_token_ids",
    "repetition_penalty",
    "allowed_token_ids",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
    "regex",
    "ebnf",
    "grammar",
    "priority",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "structured_outputs",
    "chat_template_kwargs",
};

}  // namespace troupe
