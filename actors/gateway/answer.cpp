#include "actors/gateway/answer.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// `called`: what the client knows a call by; null: there was none.
void write_finish(JsonWriter& json, FinishReason finish, const char* called) {
  json.key("finish_reason");
  switch (finish) {
    case FinishReason::kNone:
      json.null();
      return;
    case FinishReason::kStop:
      json.value(called != nullptr ? called : "stop");
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
      model_name_(request.model.empty() ? model.served_model_name() : request.model),
      wishes_{.chat = request.chat,
              .stream = request.stream,
              .include_usage = request.include_usage,
              .continuous_usage = request.continuous_usage,
              .echo = request.echo,
              .return_token_ids = request.return_token_ids,
              .reasoning = request.include_reasoning,
              .several_calls = request.calls.several,
              .old_calls = request.calls.old,
              .logprobs = request.logprobs,
              .prompt_logprobs = request.prompt_logprobs,
              .n = request.n(),
              .shown = request.shown,
              .min_tokens = request.prompts.front().min_tokens,
              .stop_in_text = request.prompts.front().include_stop_str_in_output},
      names_{model, request.tokens_as_ids || !model.has_tokenizer(),
             !request.prompts.front().skip_special_tokens},
      prompts_(request.prompts.size(),
               PromptState(std::max(request.logprobs, request.prompt_logprobs))),
      stops_(request.prompts.front().stop) {
  if (wishes_.chat) form_.reasoning = request.start;
  if (request.calls.read) {
    form_.tools = request.calls.list ? ToolStyle::kList : model.tool_style();
    form_.sketch = request.calls.sketch;
  }
  tags_ = answer_tags(form_.reasoning.style, form_.tools);
  choices_.reserve(prompts_.size() * wishes_.n);
  while (choices_.size() < prompts_.size() * wishes_.n)
    choices_.emplace_back(form_, request.logprobs);
  begin_items(request);
  if (request.pooled) pooled_.emplace(request);
  set_name(std::move(id), created_unix_s);
  if (!wishes_.echo) return;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i].prompt);
    const bool whole = request.prompts[i].truncate_prompt_tokens == 0;
    if (text != nullptr && whole) prompts_[i].text = *text;
  }
}

void Answer::set_name(std::string id, std::int64_t created_unix_s) {
  id_ = std::move(id);
  created_ = created_unix_s;
  if (items_) items_->set_name(id_, created_);
}

void Answer::take_prompt(PromptState& prompt, GenerationEvent& event) {
  prompt.tokens = std::move(event.prompt_tokens);
  prompt.cached_tokens = event.cached_tokens;
  if (wishes_.prompt_logprobs >= 0 || (wishes_.echo && wishes_.logprobs >= 0))
    for (const TokenOutput& token : event.prompt_logprobs) prompt.logprobs.add(token);
  if (!wishes_.echo || !prompt.text.empty() || !model_.has_tokenizer()) return;
  Result<std::string> text = model_.decode(prompt.tokens);
  if (text) prompt.text = std::move(text).value();
}

void Answer::take_tokens(Choice& choice, GenerationEvent& event) {
  if (event.finish != FinishReason::kNone) choice.finish = event.finish;
  completion_tokens_ += event.tokens.size();
  choice.count += static_cast<std::uint32_t>(event.tokens.size());
  for (const TokenOutput& token : event.tokens) look_at(choice, token.token);
  if (items_) {
    take_items_tokens(choice, event);
    if (event.finish != FinishReason::kNone) end_items(choice);
    return;
  }
  take_text(choice, event.text, event.finish != FinishReason::kNone);
  if (wishes_.shown > 0)
    for (const TokenOutput& token : event.tokens) choice.logprob_sum += token.logprob;
  if (wishes_.logprobs >= 0 || wishes_.return_token_ids)
    for (const TokenOutput& token : event.tokens) choice.tokens.add(token);
}

/// More of its text; `end`: the last of it.
void Answer::take_text(Choice& choice, std::string_view text, bool end) {
  if (!choice.parser) {
    choice.content += text;
    return;
  }
  take_delta(choice, choice.parser->feed(text));
  if (end) take_delta(choice, choice.parser->finish());
}

void Answer::take_delta(Choice& choice, AnswerDelta delta) const {
  if (wishes_.reasoning) choice.reasoning += delta.reasoning;
  choice.content += delta.content;
  for (CallDelta& call : delta.calls) {
    choice.called = true;
    if (call.index > 0 && !wishes_.several_calls) continue;
    follow_arguments(choice, call);
    if (!choice.calls.empty() && choice.calls.back().index == call.index) {
      choice.calls.back().arguments += call.arguments;
    } else {
      choice.calls.push_back(std::move(call));
    }
  }
}

void Answer::add(std::size_t prompt_index, GenerationEvent event, std::string& out) {
  assert(prompt_index < prompts_.size() && !event.error);
  PromptState& prompt = prompts_[prompt_index];
  if (prompt.done || event.choice >= wishes_.n) return;
  if (!event.prompt_tokens.empty() && prompt.tokens.empty()) take_prompt(prompt, event);
  if (pooled_ && !event.hidden.empty())
    pooled_->add(prompt_index, prompt.tokens.size(), std::move(event.hidden));
  const std::size_t index = prompt_index * wishes_.n + event.choice;
  Choice& choice = choices_[index];
  const bool new_tokens = !event.tokens.empty();
  take_tokens(choice, event);
  if (event.request_done) {
    prompt.done = true;
    ++prompts_done_;
  }
  if (!wishes_.stream) return;
  if (items_) return items_->append_events(id_line(), out);
  const bool shows_tokens =
      new_tokens && (wishes_.logprobs >= 0 || wishes_.return_token_ids || names_.as_ids);
  if (!choice.begun || shows_tokens || event.finish != FinishReason::kNone ||
      !choice.content.empty() || !choice.reasoning.empty() || !choice.calls.empty()) {
    // As OpenAI has it: its client knows a call's end by what comes behind the chunks of the call.
    if (choice.finish != FinishReason::kNone && !choice.calls.empty()) {
      const FinishReason finish = std::exchange(choice.finish, FinishReason::kNone);
      write_chunk(index, out);
      choice.finish = finish;
    }
    write_chunk(index, out);
  }
}

/// Of an event: how many tokens the client has with it.
std::string Answer::id_line() const {
  if (!shows_counts_) return {};
  TokenCounts counts;
  for (const Choice& choice : choices_) counts.push_back(choice.count);
  return "id: " + show_token_counts(counts) + "\n";
}

void Answer::append_event(std::string& out, std::string_view data) const {
  out += id_line();
  out += "data: ";
  out += data;
  out += "\n\n";
}

void Answer::begin(JsonWriter& json, std::string_view object) const {
  json.begin_object().member("id", id_).member("object", object).member("created", created_);
  json.member("model", model_name_);
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
    write_delta(json, index);
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
  write_finish(json, choice.finish, called_whole(choice) ? calls_name(choice) : nullptr);
  if (wishes_.return_token_ids) {
    if (!wishes_.chat && !choice.begun) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", choice.tokens);
  }
  json.end_object().end_array();
  if (wishes_.continuous_usage) {
    write_usage(json, usage_of(index));
  } else if (wishes_.include_usage) {
    json.key("usage").null();
  }
  json.end_object();
  append_event(out, json.text());
  choice.begun = true;
  choice.content.clear();
  choice.reasoning.clear();
  choice.calls.clear();
  choice.tokens.clear();
}

bool Answer::write_logprobs(JsonWriter& json, Choice& choice, const PromptState* echoed,
                            LogprobsPlace& place, std::size_t bytes_max) const {
  if (wishes_.chat) return write_chat_logprobs(json, names_, choice.tokens, place, bytes_max);
  std::optional<EchoedPrompt> prompt;
  if (echoed != nullptr)
    prompt.emplace(EchoedPrompt{echoed->text, echoed->tokens, echoed->logprobs,
                                static_cast<std::size_t>(wishes_.logprobs)});
  return CompletionLogprobs(names_, choice.tokens, prompt ? &*prompt : nullptr, choice.offsets)
      .write(json, place, bytes_max);
}

/// All, or of each prompt the best, which come first.
std::vector<std::size_t> Answer::choices_shown() const {
  std::vector<std::size_t> shown(choices_.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (wishes_.shown == 0) return shown;
  const auto mean = [this](std::size_t i) {
    const Choice& choice = choices_[i];
    return choice.count == 0 ? -std::numeric_limits<double>::infinity()
                             : choice.logprob_sum / choice.count;
  };
  std::vector<std::size_t> best;
  for (auto first = shown.begin(); first != shown.end(); first += wishes_.n) {
    std::stable_sort(first, first + wishes_.n,
                     [&](std::size_t a, std::size_t b) { return mean(a) > mean(b); });
    best.insert(best.end(), first, first + wishes_.shown);
  }
  return best;
}

bool Answer::write_prompt_logprobs(const PromptState& prompt, LogprobsPlace& place) {
  const EchoedPrompt of{prompt.text, prompt.tokens, prompt.logprobs,
                        static_cast<std::size_t>(wishes_.prompt_logprobs)};
  return troupe::write_prompt_logprobs(writing_.json, names_, of, place, limits::kHttpPieceBytes);
}

/// False if the piece is full before their end; so are the next two.
bool Answer::write_choice_logprobs(Choice& choice, const PromptState& prompt) {
  JsonWriter& json = writing_.json;
  WritingChoice& place = writing_.choice;
  const bool of_prompt = !wishes_.chat && wishes_.prompt_logprobs >= 0;
  if (!place.logprobs_done) {
    if (wishes_.logprobs < 0) {
      json.null();
    } else if (!write_logprobs(json, choice, wishes_.echo ? &prompt : nullptr, place.logprobs,
                               limits::kHttpPieceBytes)) {
      return false;
    }
    place.logprobs_done = true;
    if (of_prompt) json.key("prompt_logprobs");
  }
  return !of_prompt || write_prompt_logprobs(prompt, place.prompt_logprobs);
}

/// The choice that is next, or more of it.
bool Answer::write_choice() {
  JsonWriter& json = writing_.json;
  const std::size_t of = writing_.choices[writing_.index];
  Choice& choice = choices_[of];
  const PromptState& prompt = prompts_[of / wishes_.n];
  if (!std::exchange(writing_.choice.begun, true)) {
    json.begin_object().member("index", writing_.index);
    if (wishes_.chat) {
      write_message(json, of);
    } else {
      json.member("text", wishes_.echo ? prompt.text + choice.content : choice.content);
    }
    json.key("logprobs");
  }
  if (!write_choice_logprobs(choice, prompt)) return false;
  write_finish(json, choice.finish, called_whole(choice) ? calls_name(choice) : nullptr);
  if (wishes_.return_token_ids) {
    if (!wishes_.chat) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    write_token_ids(json, "token_ids", choice.tokens);
  }
  json.end_object();
  choice = Choice(AnswerForm{}, wishes_.logprobs);
  writing_.choice = {};
  ++writing_.index;
  return json.text().size() < limits::kHttpPieceBytes;
}

bool Answer::write_piece(std::string& out) {
  assert(complete());
  JsonWriter& json = writing_.json;
  if (items_) {
    write_items(json);
    out += json.take();
    return true;
  }
  if (pooled_) return write_pooled(out);
  if (!std::exchange(writing_.begun, true)) {
    if (!states_.empty()) writing_.status = status();
    writing_.choices = choices_shown();
    begin(json, wishes_.chat ? "chat.completion" : "text_completion");
    json.key("choices").begin_array();
  }
  const bool of_prompt = wishes_.chat && wishes_.prompt_logprobs >= 0;
  bool full = false;
  while (!full && writing_.index < writing_.choices.size()) full = !write_choice();
  if (!full && !std::exchange(writing_.choices_done, true)) {
    json.end_array();
    if (of_prompt) json.key("prompt_logprobs");
  }
  if (!full && of_prompt) full = !write_prompt_logprobs(prompts_.front(), writing_.prompt_logprobs);
  if (full) {
    out += json.take();
    return false;
  }
  write_usage(json);
  if (wishes_.chat && wishes_.return_token_ids) {
    write_token_ids(json, "prompt_token_ids", prompts_.front().tokens);
  }
  write_end(json);
  out += json.take();
  return true;
}

void Answer::write_end(JsonWriter& json) const {
  if (!writing_.status.empty()) json.member("status", writing_.status);
  if (failure_) write_error(json, *failure_);
  json.end_object();
}

std::string Answer::stream_end() {
  if (items_) return items_end(nullptr);
  std::string out;
  if (wishes_.include_usage) {
    JsonWriter json;
    begin(json, wishes_.chat ? "chat.completion.chunk" : "text_completion");
    json.key("choices").begin_array().end_array();
    write_usage(json);
    json.end_object();
    append_event(out, json.text());
  }
  append_event(out, "[DONE]");
  return out;
}

std::string Answer::stream_error(const ApiError& error) {
  if (items_) return items_end(&error);
  std::string out;
  append_event(out, render_error(error));
  append_event(out, "[DONE]");
  return out;
}

}  // namespace troupe
