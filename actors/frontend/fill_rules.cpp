// What a request says of its answer's tokens, as rules that shards follow.
#include <algorithm>
#include <memory>
#include <ranges>
#include <string>
#include <utility>

#include "actors/frontend/model_frontend.h"
#include "actors/frontend/wrong_field.h"
#include "model/chat/harmony.h"
#include "model/chat/reasoning_think.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

void sort_once(std::vector<TokenId>& ids) {
  std::ranges::sort(ids);
  const auto rest = std::ranges::unique(ids);
  ids.erase(rest.begin(), rest.end());
}

}  // namespace

Status ModelFrontend::check_ids(std::string_view field, std::span<const TokenId> ids) const {
  for (const TokenId id : ids)
    if (id < 0 || id >= vocab_size())
      return wrong_field(field, "token id " + std::to_string(id) +
                                    " is not in the vocabulary, 0 to " +
                                    std::to_string(vocab_size() - 1) + ".");
  return {};
}

/// Where an answer's grammar begins, if the model thinks before it answers.
void ModelFrontend::begin_after_thought(const GenerationRequest& request, TokenRules& rules) const {
  const ReasoningStart start = reasoning(request);
  // A grammar of calls has all channels in it.
  if (start.style == ReasoningStyle::kHarmony && !request.grammar_of_calls && !start.over)
    rules.grammar_after = {HarmonyParser::kFinal.begin(), HarmonyParser::kFinal.end()};
  if (start.style != ReasoningStyle::kThink || start.over) return;
  if (!start.inside) {
    const auto begin = parts_.tokenizer->added_token_id(ThinkParser::kTags[0]);
    if (!begin || *begin >= vocab_size()) return;
    rules.thought_token = *begin;
  }
  rules.grammar_after = {std::string(ThinkParser::kTags[1])};
  if (!request.grammar_of_calls) return;
  const auto calls = parts_.tokenizer->added_token_id(calls_begin(parts_.chat->tool_style()));
  if (calls && *calls < vocab_size()) rules.grammar_token = *calls;
}

/// Compiled only to refuse what is wrong with it while somebody waits to hear of that: the text
/// alone travels, so that any shard which takes the answer over compiles what the others did.
Status ModelFrontend::fill_grammar(const GenerationRequest& request, TokenRules& rules) const {
  if (request.grammar.empty()) return {};
  const std::string& field = request.grammar_field;
  if (!parts_.tokenizer)
    return wrong_field(field, "this model has no tokenizer, so its output has no text.");
  if (rules.end_tokens.empty())
    return wrong_field(field, "this model has no token that ends an answer.");
  if (request.grammar.size() > limits::kTokenRulesBytesMax)
    return wrong_field(field, "its grammar is " + std::to_string(request.grammar.size()) +
                                  " bytes long, more than " +
                                  std::to_string(limits::kTokenRulesBytesMax) + ".");
  const auto compiled = grammars_->begin(request.grammar).get();
  if (!compiled.ok() && compiled.error().code == ErrorCode::kUnavailable) return compiled.error();
  if (!compiled.ok()) return wrong_field(field, compiled.error().message);
  rules.grammar = request.grammar;
  if (!request.grammar_in_thought) begin_after_thought(request, rules);
  return {};
}

/// As tokens, at the beginning of a text and behind a space.
Status ModelFrontend::fill_banned(const GenerationRequest& request, TokenRules& rules) const {
  if (request.bad_words.empty()) return {};
  if (!parts_.tokenizer)
    return wrong_field("bad_words", "this model has no tokenizer, so its output has no text.");
  if (request.bad_words.size() > limits::kBadWordsMax)
    return wrong_field("bad_words",
                       "must hold at most " + std::to_string(limits::kBadWordsMax) + " texts.");
  for (const std::string& word : request.bad_words) {
    if (word.empty() || word.size() > limits::kStopStringBytesMax)
      return wrong_field("bad_words", "a text must have 1 to " +
                                          std::to_string(limits::kStopStringBytesMax) + " bytes.");
    for (const char* before : {"", " "}) {
      auto ids = parts_.tokenizer->encode(before + word, false);
      if (!ids.ok()) return wrong_field("bad_words", ids.error().message);
      if (!ids->empty() && std::ranges::find(rules.banned, *ids) == rules.banned.end())
        rules.banned.push_back(std::move(*ids));
    }
  }
  return {};
}

Status ModelFrontend::fill_bias(const GenerationRequest& request, TokenRules& rules) const {
  rules.bias = request.logit_bias;
  std::ranges::sort(rules.bias, {}, &TokenBias::token);
  for (std::size_t i = 0; i < rules.bias.size(); ++i) {
    const auto [token, bias] = rules.bias[i];
    if (const Status status = check_ids("logit_bias", {&token, 1}); !status.ok()) return status;
    if (i > 0 && rules.bias[i - 1].token == token)
      return wrong_field("logit_bias", "has token id " + std::to_string(token) + " twice.");
    if (!(bias >= -limits::kBiasMax && bias <= limits::kBiasMax))
      return wrong_field("logit_bias", "must have numbers from -100 to 100.");
  }
  return {};
}

Status ModelFrontend::fill_rules(const GenerationRequest& request,
                                 PreparedRequest& prepared) const {
  if (const Status status = check_ids("stop_token_ids", request.stop_token_ids); !status.ok())
    return status;
  if (const Status status = check_ids("allowed_token_ids", request.allowed_token_ids); !status.ok())
    return status;
  prepared.stop_tokens.insert(prepared.stop_tokens.end(), request.stop_token_ids.begin(),
                              request.stop_token_ids.end());
  sort_once(prepared.stop_tokens);
  if (request.grammar.empty() && request.min_tokens == 0 && request.allowed_token_ids.empty() &&
      request.bad_words.empty() && request.logit_bias.empty())
    return {};
  auto rules = std::make_shared<TokenRules>();
  rules->min_tokens = request.min_tokens;
  rules->end_tokens = eos_tokens_;
  rules->end_tokens.insert(rules->end_tokens.end(), request.stop_token_ids.begin(),
                           request.stop_token_ids.end());
  sort_once(rules->end_tokens);
  rules->allowed = request.allowed_token_ids;
  sort_once(rules->allowed);
  for (const auto fill :
       {&ModelFrontend::fill_grammar, &ModelFrontend::fill_banned, &ModelFrontend::fill_bias})
    if (Status status = (this->*fill)(request, *rules); !status.ok()) return status;
  if (rules->bytes() > limits::kTokenRulesBytesMax)
    return wrong_field("bad_words", "and the other rules for tokens are too many.");
  prepared.sampling.rules = std::move(rules);
  return {};
}

}  // namespace troupe
