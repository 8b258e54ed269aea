#include "actors/frontend/model_frontend.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "actors/frontend/wrong_field.h"
#include "model/model_path.h"
#include "model/spec/read_spec.h"
#include "model/step_travel.h"
#include "model/tokenizer/utf8.h"
#include "runtime/hidden_limits.h"
#include "runtime/key_share.h"

namespace troupe {
namespace {

/// Lower temperatures would overflow the scaled logits; the answer is as good as greedy there (vLLM
/// draws the same line).
constexpr float kTemperatureMin = 0.01f;

std::string number(float value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// A number's range, closed at both ends unless `above_low`.
struct Range {
  std::string_view field;
  float low, high;
  bool above_low = false;
};

Status check(float value, const Range& range) {
  if (!std::isfinite(value)) return wrong_field(range.field, "must be a finite number.");
  const bool low = range.above_low ? value > range.low : value >= range.low;
  if (low && value <= range.high) return {};
  std::string wish = range.above_low ? "above " : "at least ";
  wish += number(range.low);
  if (std::isfinite(range.high)) wish += " and at most " + number(range.high);
  return wrong_field(range.field, "must be a number " + wish + ".");
}

Status check_logprobs(std::string_view field, std::int32_t value) {
  if (value >= -1 && value <= static_cast<std::int32_t>(limits::kTopLogprobsMax)) return {};
  return wrong_field(field,
                     "must be from -1 (none) to " + std::to_string(limits::kTopLogprobsMax) + ".");
}

Result<SamplingParams> sampling_of(const GenerationRequest& request,
                                   const GenerationConfig& defaults, TokenId vocab) {
  SamplingParams sampling;
  sampling.temperature = request.temperature.value_or(defaults.temperature.value_or(1.0f));
  sampling.top_p = request.top_p.value_or(defaults.top_p.value_or(1.0f));
  sampling.top_k = request.top_k.value_or(defaults.top_k.value_or(0));
  sampling.min_p = request.min_p.value_or(defaults.min_p.value_or(0.0f));
  sampling.repetition_penalty =
      request.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0f));
  sampling.presence_penalty = request.presence_penalty.value_or(0.0f);
  sampling.frequency_penalty = request.frequency_penalty.value_or(0.0f);
  sampling.top_logprobs = request.logprobs;

  const std::pair<float, Range> numbers[] = {
      {sampling.temperature, {"temperature", 0.0f, INFINITY}},
      {sampling.top_p, {"top_p", 0.0f, 1.0f, true}},
      {sampling.min_p, {"min_p", 0.0f, 1.0f}},
      {sampling.repetition_penalty, {"repetition_penalty", 0.0f, INFINITY, true}},
      {sampling.presence_penalty, {"presence_penalty", -2.0f, 2.0f}},
      {sampling.frequency_penalty, {"frequency_penalty", -2.0f, 2.0f}},
  };
  for (const auto& [value, range] : numbers)
    if (Status status = check(value, range); !status.ok()) return status.error();
  if (sampling.top_k < -1)
    return wrong_field("top_k", "must be at least 1, or 0 or -1 for all tokens.");
  sampling.top_k = std::min(std::max(sampling.top_k, 0), vocab);
  if (sampling.temperature > 0.0f)
    sampling.temperature = std::max(sampling.temperature, kTemperatureMin);
  if (const Status status = check_logprobs("logprobs", sampling.top_logprobs); !status.ok())
    return status.error();
  return sampling;
}

/// What no request could ask for is no default either.
void leave_out_wrong(GenerationConfig& config, TokenId vocab, const std::string& file) {
  const auto check = [&](auto member) {
    GenerationConfig only;
    only.*member = config.*member;
    const auto sampling = sampling_of({}, only, vocab);
    if (sampling.ok()) return;
    config.left_out.push_back(file + ": " + sampling.error().message + " It is left out.");
    (config.*member).reset();
  };
  check(&GenerationConfig::temperature);
  check(&GenerationConfig::top_p);
  check(&GenerationConfig::top_k);
  check(&GenerationConfig::min_p);
  check(&GenerationConfig::repetition_penalty);
}

constexpr const char* kNoTokenizer =
    "This model has no tokenizer (no tokenizer.json or tiktoken.model), so it takes prompts as "
    "token ids only.";

/// For clients: which files of the server lack or are wrong is no news for them.
const char* why_no_chat(const ModelFrontend::Parts& parts) {
  if (!parts.tokenizer) return kNoTokenizer;
  return parts.chat.error().code == ErrorCode::kNotFound
             ? "This model has no chat template: it cannot chat, only complete text."
             : "This model's chat template cannot be used: it can only complete text.";
}

/// What a client calls its prompt.
const char* prompt_field(const GenerationRequest& request) {
  if (std::holds_alternative<std::vector<ChatMessage>>(request.prompt)) return "messages";
  return request.pooling == Pooling::kNone ? "prompt" : "input";
}

ChatOptions chat_options(const GenerationRequest& request) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ChatOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.continue_final_message = request.continue_final_message;
  options.tools = request.tools;
  options.template_kwargs = request.chat_template_kwargs;
  options.now_unix_s = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return options;
}

std::string folder_name(const std::string& folder) {
  std::error_code failure;
  std::filesystem::path path = std::filesystem::absolute(folder, failure).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const auto model = snapshot_model(path.string());
  if (model && model->revision == path.filename())
    return model->name.substr(model->name.find('/') + 1);
  return path.filename().string();
}

}  // namespace

Result<std::shared_ptr<const ModelFrontend>> ModelFrontend::load(const EngineOptions& options) {
  Parts parts;
  auto spec = load_model_spec(options.model);
  if (!spec.ok()) return spec.error();
  parts.spec = std::move(*spec);
  auto generation = load_generation_config(options.model);
  if (!generation.ok()) return generation.error();
  parts.generation = std::move(*generation);
  leave_out_wrong(parts.generation, parts.spec.vocab, options.model + "/generation_config.json");

  auto tokenizer = Tokenizer::load(options.model);
  if (tokenizer.ok()) {
    parts.tokenizer = std::move(*tokenizer);
    parts.chat = ChatFormat::load(options.model);
  } else if (tokenizer.error().code != ErrorCode::kNotFound) {
    return tokenizer.error();
  } else {
    parts.chat = not_found(kNoTokenizer);
  }

  const std::int64_t longest = parts.spec.positions_max;
  if (options.max_model_len < 0 || options.max_model_len > longest)
    return invalid_argument("--max-model-len must be from 1 to " + std::to_string(longest) +
                            ", all the positions that the model's configuration gives it.");
  parts.max_model_len = options.max_model_len > 0 ? options.max_model_len : longest;
  if (const Status travels = check_steps_travel(parts.spec, options, parts.max_model_len);
      !travels.ok())
    return travels.error();
  parts.served_model_name =
      options.served_model_name.empty() ? folder_name(options.model) : options.served_model_name;
  parts.default_seed = options.seed;
  parts.request_timeout_s = options.request_timeout_s;

  return std::make_shared<const ModelFrontend>(std::move(parts));
}

ModelFrontend::ModelFrontend(Parts parts) : parts_(std::move(parts)) {
  ends_ = find_text_ends({parts_.generation, parts_.spec, parts_.tokenizer.get(), parts_.chat});
  for (const EndToken& end : ends_.end) eos_tokens_.push_back(end.id);
  if (!parts_.tokenizer || !parts_.chat.ok()) return;
  const auto keep = [&](ToolStyle tools, std::vector<TokenId>& tokens) {
    for (const std::string_view tag : answer_tags(parts_.chat->reasoning_style(), tools))
      if (const auto id = parts_.tokenizer->added_token_id(tag)) tokens.push_back(*id);
  };
  keep(ToolStyle::kNone, reasoning_tokens_);
  keep(parts_.chat->tool_style(), calls_tokens_);
}

Result<PreparedRequest> ModelFrontend::prepare(const GenerationRequest& request) const {
  PreparedRequest prepared;
  // Parameters first: they are cheap to check, and a long text is not worth encoding for a bad one.
  auto sampling = sampling_of(request, parts_.generation, vocab_size());
  if (!sampling.ok()) return sampling.error();
  prepared.sampling = std::move(*sampling);
  if (request.n < 1 || request.n > limits::kChoicesMax)
    return wrong_field("n", "must be from 1 to " + std::to_string(limits::kChoicesMax) + ".");
  prepared.n = request.n;
  prepared.streams = request.streams;
  if (request.priority < -kPriorityMax || request.priority > kPriorityMax)
    return wrong_field("priority", "must be from " + std::to_string(-kPriorityMax) + " to " +
                                       std::to_string(kPriorityMax) + ".");
  prepared.priority = request.priority;
  prepared.name = request.name;
  if (const Status status = check_logprobs("prompt_logprobs", request.prompt_logprobs);
      !status.ok())
    return status.error();
  prepared.prompt_logprobs = request.prompt_logprobs;
  if (const Status status = fill_stops(request, prepared); !status.ok()) return status.error();
  if (request.timeout_ms && *request.timeout_ms == 0)
    return wrong_field("timeout_ms", "must be at least 1.");
  prepared.timeout = std::chrono::seconds(parts_.request_timeout_s);
  if (request.timeout_ms)
    prepared.timeout =
        std::min<Duration>(prepared.timeout, std::chrono::milliseconds(*request.timeout_ms));
  prepared.seed = request.seed ? request.seed : parts_.default_seed;

  auto prompt = prompt_tokens(request);
  if (!prompt.ok()) return prompt.error();
  prepared.prompt = std::move(*prompt);
  if (const Status status = truncate(request, prepared.prompt); !status.ok()) return status.error();
  if (const Status status = check_prompt(request, prepared.prompt); !status.ok())
    return status.error();
  if (std::holds_alternative<std::vector<ChatMessage>>(request.prompt))
    prepared.keep_special = request.tools.empty() ? reasoning_tokens_ : calls_tokens_;
  const bool pools = request.pooling != Pooling::kNone;
  if (const Status status =
          pools ? fill_pooling(request, prepared) : fill_max_tokens(request, prepared);
      !status.ok())
    return status.error();
  if (const Status status = fill_rules(request, prepared); !status.ok()) return status.error();
  return prepared;
}

ReasoningStart ModelFrontend::reasoning(const GenerationRequest& request) const {
  const auto* messages = std::get_if<std::vector<ChatMessage>>(&request.prompt);
  if (messages == nullptr || !parts_.chat.ok()) return {};
  return parts_.chat->reasoning(*messages, chat_options(request));
}

Result<std::vector<TokenId>> ModelFrontend::prompt_tokens(const GenerationRequest& request) const {
  const Prompt& prompt = request.prompt;
  const bool truncated = request.truncate_prompt_tokens != 0;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return prompt_of_text(prompt_field(request), *text, request.add_special_tokens, truncated);
  }
  const auto& messages = std::get<std::vector<ChatMessage>>(prompt);
  if (messages.empty()) return wrong_field("messages", "must hold at least one message.");
  if (!parts_.chat.ok()) return wrong_field("messages", why_no_chat(parts_));
  const auto text = parts_.chat->render(messages, chat_options(request));
  if (!text.ok()) {
    const std::string& message = text.error().message;
    const bool names_field = message.starts_with("messages") ||
                             message.starts_with("chat_template_kwargs") ||
                             message.starts_with("tools");
    return names_field ? invalid_argument(message) : wrong_field("messages", message);
  }
  return prompt_of_text("messages", *text, false, truncated);
}

Result<std::vector<TokenId>> ModelFrontend::prompt_of_text(std::string_view field,
                                                           std::string_view text,
                                                           bool add_special_tokens,
                                                           bool truncated) const {
  const std::size_t least = parts_.tokenizer ? parts_.tokenizer->tokens_at_least(text.size()) : 0;
  if (!truncated && least > static_cast<std::size_t>(parts_.max_model_len))
    return too_long(field, "at least " + std::to_string(least));
  auto ids = tokenize(text, add_special_tokens);
  if (!ids.ok()) return wrong_field(field, ids.error().message);
  return ids;
}

/// Keeps the prompt's end.
Status ModelFrontend::truncate(const GenerationRequest& request,
                               std::vector<TokenId>& prompt) const {
  std::int64_t kept = request.truncate_prompt_tokens;
  if (kept == 0) return {};
  if (kept < -1)
    return wrong_field("truncate_prompt_tokens", "must be at least 1, or -1 for what fits.");
  if (kept == -1) {
    const bool chat = std::holds_alternative<std::vector<ChatMessage>>(request.prompt);
    std::int64_t answer = request.max_tokens.value_or(chat ? 1 : kCompletionTokens);
    answer = request.pooling == Pooling::kNone ? std::max<std::int64_t>(answer, 1) : 0;
    kept = std::max<std::int64_t>(parts_.max_model_len - answer, 1);
  }
  if (const auto length = static_cast<std::int64_t>(prompt.size()); length > kept)
    prompt.erase(prompt.begin(), prompt.begin() + (length - kept));
  return {};
}

Error ModelFrontend::too_long(std::string_view field, const std::string& tokens) const {
  return wrong_field(
      field,
      "has " + tokens + " tokens; the context holds " + std::to_string(parts_.max_model_len) +
          ", answer included: shorten it" +
          (parts_.max_model_len < parts_.spec.positions_max ? ", or raise --max-model-len." : "."));
}

Status ModelFrontend::check_prompt(const GenerationRequest& request,
                                   const std::vector<TokenId>& prompt) const {
  if (prompt.empty()) return wrong_field(prompt_field(request), "must hold at least one token.");
  return check_ids(prompt_field(request), prompt);
}

/// Nothing is generated.
Status ModelFrontend::fill_pooling(const GenerationRequest& request,
                                   PreparedRequest& prepared) const {
  if (request.n != 1) return wrong_field("n", "must be 1 where hidden states are asked for.");
  if (request.prompt_logprobs >= 0)
    return wrong_field("prompt_logprobs", "cannot be asked for together with hidden states.");
  const std::size_t length = prepared.prompt.size();
  if (length > static_cast<std::size_t>(parts_.max_model_len))
    return too_long(prompt_field(request), std::to_string(length));
  prepared.max_tokens = 0;
  prepared.pooling = request.pooling;
  prepared.hidden_width = static_cast<std::uint32_t>(parts_.spec.hidden);
  const std::size_t each = prepared.hidden_width * sizeof(float);
  const std::size_t bytes = prepared.hidden_values() * sizeof(float);
  if (each <= limits::kStepHiddenBytesMax && bytes <= limits::kRequestHiddenBytesMax) return {};
  return wrong_field(prompt_field(request),
                     "the hidden states of " + std::to_string(length) + " tokens take " +
                         std::to_string(bytes) + " bytes, and one request may have " +
                         std::to_string(limits::kRequestHiddenBytesMax) +
                         ": send shorter ones, or ask for the last token's.");
}

Status ModelFrontend::fill_stops(const GenerationRequest& request,
                                 PreparedRequest& prepared) const {
  if (!request.stop.empty() && !parts_.tokenizer)
    return wrong_field("stop",
                       "this model has no tokenizer, so its output has no text to stop at.");
  if (request.stop.size() > limits::kStopStringsMax)
    return wrong_field(
        "stop", "must hold at most " + std::to_string(limits::kStopStringsMax) + " strings.");
  for (const std::string& text : request.stop) {
    if (text.empty()) return wrong_field("stop", "a stop string must not be empty.");
    if (text.size() > limits::kStopStringBytesMax)
      return wrong_field("stop", "a stop string must have at most " +
                                     std::to_string(limits::kStopStringBytesMax) + " bytes.");
    if (!utf8::valid(text)) return wrong_field("stop", "a stop string must be valid UTF-8.");
  }
  prepared.stop = request.stop;
  prepared.include_stop_str_in_output = request.include_stop_str_in_output;
  prepared.skip_special_tokens = request.skip_special_tokens;
  if (!request.ignore_eos) prepared.stop_tokens = eos_tokens_;
  return {};
}

Status ModelFrontend::fill_max_tokens(const GenerationRequest& request,
                                      PreparedRequest& prepared) const {
  const auto length = static_cast<std::int64_t>(prepared.prompt.size());
  const std::int64_t room = parts_.max_model_len - length;
  const bool chat = std::holds_alternative<std::vector<ChatMessage>>(request.prompt);
  const std::int64_t wanted =
      request.max_tokens ? *request.max_tokens : (chat ? parts_.max_model_len : kCompletionTokens);
  // A prompt may be scored without generating anything.
  if (wanted == 0 && prepared.prompt_logprobs < 0)
    return wrong_field("max_tokens", "must be at least 1.");
  if (room < (wanted == 0 ? 0 : 1)) return too_long(prompt_field(request), std::to_string(length));
  if (request.max_tokens && wanted > room)
    return wrong_field("max_tokens", "is " + std::to_string(wanted) + ", and the prompt has " +
                                         std::to_string(length) + " tokens; the context holds " +
                                         std::to_string(parts_.max_model_len) +
                                         ", answer included: at most " + std::to_string(room) +
                                         " are left.");
  prepared.max_tokens = static_cast<std::uint32_t>(std::min(wanted, room));
  if (request.min_tokens > prepared.max_tokens)
    return wrong_field("min_tokens", "must be at most max_tokens, here " +
                                         std::to_string(prepared.max_tokens) + ".");
  return {};
}

Result<std::vector<TokenId>> ModelFrontend::tokenize(std::string_view text,
                                                     bool add_special_tokens) const {
  if (!parts_.tokenizer)
    return invalid_argument("This model has no tokenizer: give the prompt as token ids.");
  return parts_.tokenizer->encode(text, add_special_tokens);
}

Result<std::string> ModelFrontend::detokenize(std::span<const TokenId> ids) const {
  if (!parts_.tokenizer)
    return invalid_argument("This model has no tokenizer: its tokens have no text.");
  if (const Status status = check_ids("tokens", ids); !status.ok()) return status.error();
  return parts_.tokenizer->decode(ids, false);
}

}  // namespace troupe
