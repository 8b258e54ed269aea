#include "actors/gateway/answer.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {
namespace {

std::string event_line(std::string_view json) {
  std::string line = "data: ";
  line += json;
  line += "\n\n";
  return line;
}

void write_finish(JsonWriter& json, FinishReason finish) {
  json.key("finish_reason");
  switch (finish) {
    case FinishReason::kNone:
      json.null();
      return;
    case FinishReason::kStop:
      json.value("stop");
      return;
    case FinishReason::kLength:
      json.value("length");
      return;
  }
}

std::vector<TokenId> ids_of(const std::vector<TokenOutput>& tokens) {
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const TokenOutput& token : tokens) ids.push_back(token.token);
  return ids;
}

}  // namespace

Answer::Answer(const ApiRequest& request, const GatewayModel& model, std::string id,
               std::int64_t created_unix_s)
    : model_(model),
      id_(std::move(id)),
      created_(created_unix_s),
      chat_(request.chat),
      stream_(request.stream),
      include_usage_(request.include_usage),
      echo_(request.echo),
      drop_generated_(request.drop_generated),
      return_token_ids_(request.return_token_ids),
      tokens_as_ids_(request.tokens_as_ids || !model.has_tokenizer()),
      logprobs_(request.logprobs),
      n_(request.n()),
      reasoning_(request.chat && model.reasoning()),
      prompts_(request.prompts.size()) {
  choices_.assign(prompts_.size() * n_, Choice(model.opens_think()));
  if (!echo_) return;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i].prompt);
    if (text != nullptr) prompts_[i].text = *text;
  }
}

void Answer::take_prompt(PromptState& prompt, GenerationEvent& event) {
  prompt.tokens = std::move(event.prompt_tokens);
  prompt.logprobs = std::move(event.prompt_logprobs);
  if (!echo_ || !prompt.text.empty() || !model_.has_tokenizer()) return;
  Result<std::string> text = model_.decode(prompt.tokens);
  if (text) prompt.text = std::move(text).value();
}

void Answer::take_tokens(Choice& choice, GenerationEvent& event) {
  if (event.finish != FinishReason::kNone) choice.finish = event.finish;
  if (drop_generated_) {
    if (choice.finish != FinishReason::kNone) choice.finish = FinishReason::kLength;
    return;
  }
  completion_tokens_ += event.tokens.size();
  if (reasoning_) {
    ReasoningDelta delta = choice.parser.feed(event.text);
    choice.reasoning += delta.reasoning;
    choice.content += delta.content;
    if (event.finish != FinishReason::kNone) {
      delta = choice.parser.finish();
      choice.reasoning += delta.reasoning;
      choice.content += delta.content;
    }
  } else {
    choice.content += event.text;
  }
  if (logprobs_ >= 0 || return_token_ids_) {
    std::move(event.tokens.begin(), event.tokens.end(), std::back_inserter(choice.tokens));
  }
}

void Answer::add(std::size_t prompt_index, GenerationEvent event, std::string& out) {
  assert(prompt_index < prompts_.size() && !event.error);
  PromptState& prompt = prompts_[prompt_index];
  if (prompt.done || event.choice >= n_) return;
  if (!event.prompt_tokens.empty()) take_prompt(prompt, event);
  const std::size_t index = prompt_index * n_ + event.choice;
  Choice& choice = choices_[index];
  const bool new_tokens = !event.tokens.empty() && !drop_generated_;
  take_tokens(choice, event);
  if (event.request_done) {
    prompt.done = true;
    ++prompts_done_;
  }
  if (!stream_) return;
  const bool shows_tokens = new_tokens && (logprobs_ >= 0 || return_token_ids_ || tokens_as_ids_);
  if (!choice.begun || shows_tokens || event.finish != FinishReason::kNone ||
      !choice.content.empty() || !choice.reasoning.empty()) {
    write_chunk(index, out);
  }
}

void Answer::begin(JsonWriter& json, std::string_view object) const {
  json.begin_object().member("id", id_).member("object", object).member("created", created_);
  json.member("model", model_.served_model_name());
}

void Answer::write_usage(JsonWriter& json) const {
  std::uint64_t prompt_tokens = 0;
  for (const PromptState& prompt : prompts_) prompt_tokens += prompt.tokens.size();
  json.key("usage").begin_object();
  json.member("prompt_tokens", prompt_tokens);
  json.member("completion_tokens", completion_tokens_);
  json.member("total_tokens", prompt_tokens + completion_tokens_);
  json.end_object();
}

void Answer::write_chunk(std::size_t index, std::string& out) {
  Choice& choice = choices_[index];
  const PromptState& prompt = prompts_[index / n_];
  const PromptState* echoed = echo_ && !choice.begun ? &prompt : nullptr;
  JsonWriter json;
  begin(json, chat_ ? "chat.completion.chunk" : "text_completion");
  // A chat's prompt is the same for all choices: it goes with the first chunk.
  if (chat_ && return_token_ids_ && !choice.begun) {
    write_token_ids(json, "prompt_token_ids", prompt.tokens);
  }
  json.key("choices").begin_array().begin_object().member("index", index);
  if (chat_) {
    write_delta(json, choice);
  } else {
    json.member("text", echoed != nullptr ? prompt.text + choice.content : choice.content);
  }
  json.key("logprobs");
  if (logprobs_ < 0 || (choice.tokens.empty() && echoed == nullptr)) {
    json.null();
  } else if (chat_) {
    write_chat_logprobs(json, choice);
  } else {
    write_completion_logprobs(json, choice, echoed, choice.text_offset);
    choice.text_offset += characters(choice, echoed);
  }
  write_finish(json, choice.finish);
  if (return_token_ids_) {
    if (!chat_ && !choice.begun) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", ids_of(choice.tokens));
  }
  json.end_object().end_array();
  if (include_usage_) json.key("usage").null();
  json.end_object();
  out += event_line(json.text());
  choice.begun = true;
  choice.content.clear();
  choice.reasoning.clear();
  choice.tokens.clear();
}

void Answer::write_delta(JsonWriter& json, const Choice& choice) const {
  json.key("delta").begin_object();
  if (!choice.begun) json.member("role", "assistant");
  if (!choice.reasoning.empty()) json.member("reasoning_content", choice.reasoning);
  // Clients expect a text in the first delta.
  const bool first = !choice.begun && choice.reasoning.empty();
  if (first || !choice.content.empty()) json.member("content", choice.content);
  json.end_object();
}

void Answer::write_message(JsonWriter& json, const Choice& choice) const {
  json.key("message").begin_object().member("role", "assistant");
  if (!reasoning_) {
    json.member("content", choice.content);
  } else {
    json.member_or_null("reasoning_content", choice.reasoning);
    json.member_or_null("content", choice.content);
  }
  json.end_object();
}

void Answer::write_choice(JsonWriter& json, std::size_t index) const {
  const Choice& choice = choices_[index];
  const PromptState& prompt = prompts_[index / n_];
  json.begin_object().member("index", index);
  if (chat_) {
    write_message(json, choice);
  } else {
    json.member("text", echo_ ? prompt.text + choice.content : choice.content);
  }
  json.key("logprobs");
  if (logprobs_ < 0) {
    json.null();
  } else if (chat_) {
    write_chat_logprobs(json, choice);
  } else {
    write_completion_logprobs(json, choice, echo_ ? &prompt : nullptr, 0);
  }
  write_finish(json, choice.finish);
  if (return_token_ids_) {
    if (!chat_) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", ids_of(choice.tokens));
  }
  json.end_object();
}

std::string Answer::whole() const {
  assert(complete());
  JsonWriter json;
  begin(json, chat_ ? "chat.completion" : "text_completion");
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < choices_.size(); ++i) write_choice(json, i);
  json.end_array();
  write_usage(json);
  if (chat_ && return_token_ids_) {
    write_token_ids(json, "prompt_token_ids", prompts_.front().tokens);
  }
  json.end_object();
  return std::move(json).text();
}

std::string Answer::stream_end() const {
  std::string out;
  if (include_usage_) {
    JsonWriter json;
    begin(json, chat_ ? "chat.completion.chunk" : "text_completion");
    json.key("choices").begin_array().end_array();
    write_usage(json);
    json.end_object();
    out = event_line(json.text());
  }
  return out + event_line("[DONE]");
}

std::string Answer::stream_error(const ApiError& error) {
  return event_line(render_error(error)) + event_line("[DONE]");
}

std::string Answer::token_text(TokenId id) const {
  if (tokens_as_ids_) return "token_id:" + std::to_string(id);
  return valid_utf8(model_.token_bytes(id));
}

void Answer::write_chat_logprobs(JsonWriter& json, const Choice& choice) const {
  const auto entry = [&](TokenId id, float logprob) {
    json.member("token", token_text(id)).member("logprob", logprob).key("bytes");
    if (!model_.has_tokenizer()) {
      json.null();
      return;
    }
    json.begin_array();
    for (const char c : model_.token_bytes(id))
      json.value(static_cast<int>(static_cast<unsigned char>(c)));
    json.end_array();
  };
  json.begin_object().key("content").begin_array();
  for (const TokenOutput& token : choice.tokens) {
    json.begin_object();
    entry(token.token, token.logprob);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& top : token.top) {
      json.begin_object();
      entry(top.token, top.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

namespace {

/// One position of a completion's log-probabilities; the first token of a prompt has none.
struct Position {
  TokenId token;
  const TokenOutput* outcome;
};

}  // namespace

void Answer::write_completion_logprobs(JsonWriter& json, const Choice& choice,
                                       const PromptState* prompt, std::size_t offset) const {
  std::vector<Position> positions;
  if (prompt != nullptr) {
    for (std::size_t i = 0; i < prompt->tokens.size(); ++i) {
      const bool known = i > 0 && i - 1 < prompt->logprobs.size();
      positions.push_back({prompt->tokens[i], known ? &prompt->logprobs[i - 1] : nullptr});
    }
  }
  for (const TokenOutput& token : choice.tokens) positions.push_back({token.token, &token});

  json.begin_object().key("text_offset").begin_array();
  for (const Position& position : positions) {
    json.value(offset);
    offset += utf8_length(token_text(position.token));
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const Position& position : positions) {
    if (position.outcome == nullptr) {
      json.null();
    } else {
      json.value(position.outcome->logprob);
    }
  }
  json.end_array().key("tokens").begin_array();
  for (const Position& position : positions) json.value(token_text(position.token));
  json.end_array().key("top_logprobs").begin_array();
  std::vector<std::string> seen;  // Different tokens may read the same; JSON names must not repeat.
  for (const Position& position : positions) {
    if (position.outcome == nullptr) {
      json.null();
      continue;
    }
    seen.clear();
    json.begin_object();
    const auto entry = [&](TokenId id, float logprob) {
      std::string text = token_text(id);
      if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
      json.member(text, logprob);
      seen.push_back(std::move(text));
    };
    for (const TokenLogprob& top : position.outcome->top) entry(top.token, top.logprob);
    entry(position.token, position.outcome->logprob);
    json.end_object();
  }
  json.end_array().end_object();
}

std::size_t Answer::characters(const Choice& choice, const PromptState* prompt) const {
  std::size_t count = 0;
  if (prompt != nullptr) {
    for (const TokenId id : prompt->tokens) count += utf8_length(token_text(id));
  }
  for (const TokenOutput& token : choice.tokens) count += utf8_length(token_text(token.token));
  return count;
}

void Answer::write_token_ids(JsonWriter& json, std::string_view name,
                             const std::vector<TokenId>& ids) const {
  json.key(name).begin_array();
  for (const TokenId id : ids) json.value(id);
  json.end_array();
}

}  // namespace troupe
