#include "actors/gateway/answer.h"

#include <cassert>
#include <limits>
#include <utility>

#include "runtime/limits.h"

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

void write_token_ids(JsonWriter& json, std::string_view name, const std::vector<TokenId>& ids) {
  json.key(name).begin_array();
  for (const TokenId id : ids) json.value(id);
  json.end_array();
}

void write_token_ids(JsonWriter& json, std::string_view name, const KeptTokens& tokens) {
  json.key(name).begin_array();
  for (std::size_t i = 0; i < tokens.size(); ++i) json.value(tokens.chosen(i).token);
  json.end_array();
}

}  // namespace

Answer::Answer(const ApiRequest& request, const GatewayModel& model, std::string id,
               std::int64_t created_unix_s)
    : model_(model),
      id_(std::move(id)),
      created_(created_unix_s),
      wishes_{request.chat,
              request.stream,
              request.include_usage,
              request.echo,
              request.return_token_ids,
              request.logprobs,
              request.n()},
      names_{model, request.tokens_as_ids || !model.has_tokenizer()},
      prompts_(request.prompts.size(), PromptState(request.logprobs)) {
  ReasoningStart start;
  if (wishes_.chat) start = model.reasoning(request.prompts.front().chat_template_kwargs);
  choices_.reserve(prompts_.size() * wishes_.n);
  while (choices_.size() < prompts_.size() * wishes_.n)
    choices_.emplace_back(start, request.logprobs);
  if (!wishes_.echo) return;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i].prompt);
    if (text != nullptr) prompts_[i].text = *text;
  }
}

void Answer::take_prompt(PromptState& prompt, GenerationEvent& event) {
  prompt.tokens = std::move(event.prompt_tokens);
  cached_tokens_ += event.cached_tokens;
  if (!wishes_.echo) return;
  if (wishes_.logprobs >= 0)
    for (const TokenOutput& token : event.prompt_logprobs) prompt.logprobs.add(token);
  if (!prompt.text.empty() || !model_.has_tokenizer()) return;
  Result<std::string> text = model_.decode(prompt.tokens);
  if (text) prompt.text = std::move(text).value();
}

void Answer::take_tokens(Choice& choice, GenerationEvent& event) {
  if (event.finish != FinishReason::kNone) choice.finish = event.finish;
  completion_tokens_ += event.tokens.size();
  if (choice.parser) {
    ReasoningDelta delta = choice.parser->feed(event.text);
    choice.reasoning += delta.reasoning;
    choice.content += delta.content;
    if (event.finish != FinishReason::kNone) {
      delta = choice.parser->finish();
      choice.reasoning += delta.reasoning;
      choice.content += delta.content;
    }
  } else {
    choice.content += event.text;
  }
  if (wishes_.logprobs >= 0 || wishes_.return_token_ids)
    for (const TokenOutput& token : event.tokens) choice.tokens.add(token);
}

void Answer::add(std::size_t prompt_index, GenerationEvent event, std::string& out) {
  assert(prompt_index < prompts_.size() && !event.error);
  PromptState& prompt = prompts_[prompt_index];
  if (prompt.done || event.choice >= wishes_.n) return;
  if (!event.prompt_tokens.empty()) take_prompt(prompt, event);
  const std::size_t index = prompt_index * wishes_.n + event.choice;
  Choice& choice = choices_[index];
  const bool new_tokens = !event.tokens.empty();
  take_tokens(choice, event);
  if (event.request_done) {
    prompt.done = true;
    ++prompts_done_;
  }
  if (!wishes_.stream) return;
  const bool shows_tokens =
      new_tokens && (wishes_.logprobs >= 0 || wishes_.return_token_ids || names_.as_ids);
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
  json.key("prompt_tokens_details").begin_object().member("cached_tokens", cached_tokens_);
  json.end_object();
  json.end_object();
}

void Answer::write_chunk(std::size_t index, std::string& out) {
  Choice& choice = choices_[index];
  const PromptState& prompt = prompts_[index / wishes_.n];
  const PromptState* echoed = wishes_.echo && !choice.begun ? &prompt : nullptr;
  JsonWriter json;
  begin(json, wishes_.chat ? "chat.completion.chunk" : "text_completion");
  // A chat's prompt is the same for all choices: it goes with the first chunk.
  if (wishes_.chat && wishes_.return_token_ids && !choice.begun) {
    write_token_ids(json, "prompt_token_ids", prompt.tokens);
  }
  json.key("choices").begin_array().begin_object().member("index", index);
  if (wishes_.chat) {
    write_delta(json, choice);
  } else {
    json.member("text", echoed != nullptr ? prompt.text + choice.content : choice.content);
  }
  json.key("logprobs");
  if (wishes_.logprobs < 0 || (choice.tokens.empty() && echoed == nullptr)) {
    json.null();
  } else {
    LogprobsPlace from_the_beginning;
    write_logprobs(json, choice, echoed, from_the_beginning,
                   std::numeric_limits<std::size_t>::max());
  }
  write_finish(json, choice.finish);
  if (wishes_.return_token_ids) {
    if (!wishes_.chat && !choice.begun) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", choice.tokens);
  }
  json.end_object().end_array();
  if (wishes_.include_usage) json.key("usage").null();
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
  if (!choice.parser) {
    json.member("content", choice.content);
  } else {
    json.member_or_null("reasoning_content", choice.reasoning);
    json.member_or_null("content", choice.content);
  }
  json.end_object();
}

bool Answer::write_logprobs(JsonWriter& json, Choice& choice, const PromptState* echoed,
                            LogprobsPlace& place, std::size_t bytes_max) const {
  if (wishes_.chat) return write_chat_logprobs(json, names_, choice.tokens, place, bytes_max);
  std::optional<EchoedPrompt> prompt;
  if (echoed != nullptr)
    prompt.emplace(EchoedPrompt{echoed->text, echoed->tokens, echoed->logprobs});
  return CompletionLogprobs(names_, choice.tokens, prompt ? &*prompt : nullptr, choice.offsets)
      .write(json, place, bytes_max);
}

/// The choice that is next, or more of it; false if the piece is full before its end.
bool Answer::write_choice() {
  JsonWriter& json = writing_.json;
  Choice& choice = choices_[writing_.choice];
  const PromptState& prompt = prompts_[writing_.choice / wishes_.n];
  if (!std::exchange(writing_.choice_begun, true)) {
    json.begin_object().member("index", writing_.choice);
    if (wishes_.chat) {
      write_message(json, choice);
    } else {
      json.member("text", wishes_.echo ? prompt.text + choice.content : choice.content);
    }
    json.key("logprobs");
  }
  if (wishes_.logprobs < 0) {
    json.null();
  } else if (!write_logprobs(json, choice, wishes_.echo ? &prompt : nullptr, writing_.logprobs,
                             limits::kHttpPieceBytes)) {
    return false;
  }
  write_finish(json, choice.finish);
  if (wishes_.return_token_ids) {
    if (!wishes_.chat) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", choice.tokens);
  }
  json.end_object();
  choice = Choice(ReasoningStart{}, wishes_.logprobs);
  writing_.choice_begun = false;
  writing_.logprobs = {};
  ++writing_.choice;
  return json.text().size() < limits::kHttpPieceBytes;
}

bool Answer::write_piece(std::string& out) {
  assert(complete());
  JsonWriter& json = writing_.json;
  if (!std::exchange(writing_.begun, true)) {
    begin(json, wishes_.chat ? "chat.completion" : "text_completion");
    json.key("choices").begin_array();
  }
  while (writing_.choice < choices_.size()) {
    if (write_choice()) continue;
    out += json.take();
    return false;
  }
  json.end_array();
  write_usage(json);
  if (wishes_.chat && wishes_.return_token_ids) {
    write_token_ids(json, "prompt_token_ids", prompts_.front().tokens);
  }
  json.end_object();
  out += json.take();
  return true;
}

std::string Answer::stream_end() const {
  std::string out;
  if (wishes_.include_usage) {
    JsonWriter json;
    begin(json, wishes_.chat ? "chat.completion.chunk" : "text_completion");
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

}  // namespace troupe
