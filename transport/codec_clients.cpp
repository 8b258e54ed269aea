#include <cmath>

#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

void put(wire::OptionalFloat32::Builder wire, const std::optional<float>& value) {
  if (value) wire.setValue(*value);
}

std::optional<float> get_float(In& in, wire::OptionalFloat32::Reader wire) {
  if (wire.isValue()) return wire.getValue();
  in.require(wire.isNone(), "a number has an unknown form");
  return std::nullopt;
}

/// For the groups that are a union of `none` and `value`.
template <class T, class Wire>
std::optional<T> get_optional(In& in, Wire wire) {
  if (wire.isValue()) return wire.getValue();
  in.require(wire.isNone(), "a number has an unknown form");
  return std::nullopt;
}

/// Whether the model has these tokens, its frontend will say to the client.
std::vector<TokenId> get_ids(In& in, capnp::List<std::int32_t>::Reader wire) {
  return in.ints(wire, std::numeric_limits<std::int32_t>::min(), kInt32Max, "a token");
}

void put_prompt(Out& out, wire::GenerationRequest::Prompt::Builder wire, const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    wire.setText(out.text(*text, "the prompt"));
  } else if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
    put_ints(wire.initTokens(tokens->size()), *tokens);
  } else {
    const auto& chat = std::get<std::vector<ChatMessage>>(prompt);
    put_list(chat, wire.initChat(chat.size()), [&](auto w, const ChatMessage& turn) {
      w.setRole(out.name(turn.role, "a role"));
      w.setContent(out.text(turn.content, "a message's content"));
      put_list(turn.tool_calls, w.initToolCalls(turn.tool_calls.size()),
               [&](auto c, const ToolCall& call) {
                 c.setId(out.text(call.id, "a call's id"));
                 c.setName(out.text(call.name, "a call's name"));
                 c.setArguments(out.text(call.arguments, "a call's arguments"));
               });
      w.setToolCallId(out.text(turn.tool_call_id, "a call's id"));
      w.setName(out.text(turn.name, "a message's name"));
      w.setReasoningContent(out.text(turn.reasoning_content, "a message's thought"));
      put_texts(out, w.initParts(turn.parts.size()), turn.parts);
      w.setMore(out.text(turn.more, "a message's other fields"));
    });
  }
}

Prompt get_prompt(In& in, wire::GenerationRequest::Prompt::Reader wire) {
  if (wire.isText()) return in.text(wire.getText(), "the prompt");
  if (wire.isTokens()) return get_ids(in, wire.getTokens());
  in.require(wire.isChat(), "a prompt has an unknown form");
  if (!in.ok()) return {};
  return in.list<ChatMessage>(wire.getChat(), [&](auto w) {
    ChatMessage turn{in.name(w.getRole(), "a role"),
                     in.text(w.getContent(), "a message's content")};
    turn.tool_calls = in.list<ToolCall>(w.getToolCalls(), [&](auto c) {
      return ToolCall{in.text(c.getId(), "a call's id"), in.text(c.getName(), "a call's name"),
                      in.text(c.getArguments(), "a call's arguments")};
    });
    turn.tool_call_id = in.text(w.getToolCallId(), "a call's id");
    turn.name = in.text(w.getName(), "a message's name");
    turn.reasoning_content = in.text(w.getReasoningContent(), "a message's thought");
    turn.parts = get_texts(in, w.getParts());
    turn.more = in.text(w.getMore(), "a message's other fields");
    return turn;
  });
}

void put(Out& out, wire::GenerationRequest::Builder wire, const GenerationRequest& request) {
  put_prompt(out, wire.getPrompt(), request.prompt);
  wire.setChatTemplateKwargs(out.text(request.chat_template_kwargs, "chat_template_kwargs"));
  wire.setTools(out.text(request.tools, "tools"));
  if (request.max_tokens) wire.getMaxTokens().setValue(*request.max_tokens);
  put(wire.initTemperature(), request.temperature);
  put(wire.initTopP(), request.top_p);
  put(wire.initMinP(), request.min_p);
  put(wire.initRepetitionPenalty(), request.repetition_penalty);
  put(wire.initPresencePenalty(), request.presence_penalty);
  put(wire.initFrequencyPenalty(), request.frequency_penalty);
  if (request.top_k) wire.getTopK().setValue(*request.top_k);
  if (request.seed) wire.getSeed().setValue(*request.seed);
  wire.setN(request.n);
  put_texts(out, wire.initStop(request.stop.size()), request.stop);
  wire.setGrammar(out.text(request.grammar, "a grammar"));
  wire.setGrammarOfCalls(request.grammar_of_calls);
  wire.setGrammarInThought(request.grammar_in_thought);
  wire.setPriority(request.priority);
  wire.setMinTokens(request.min_tokens);
  put_ints(wire.initStopTokenIds(request.stop_token_ids.size()), request.stop_token_ids);
  put_ints(wire.initAllowedTokenIds(request.allowed_token_ids.size()), request.allowed_token_ids);
  put_texts(out, wire.initBadWords(request.bad_words.size()), request.bad_words);
  put_list(request.logit_bias, wire.initLogitBias(request.logit_bias.size()),
           [](auto w, const TokenBias& of) {
             w.setToken(of.token);
             w.setBias(of.bias);
           });
  wire.setIgnoreEos(request.ignore_eos);
  wire.setAddSpecialTokens(request.add_special_tokens);
  wire.setAddGenerationPrompt(request.add_generation_prompt);
  wire.setContinueFinalMessage(request.continue_final_message);
  wire.setTruncatePromptTokens(request.truncate_prompt_tokens);
  wire.setIncludeStopStrInOutput(request.include_stop_str_in_output);
  wire.setSkipSpecialTokens(request.skip_special_tokens);
  wire.setLogprobs(request.logprobs);
  wire.setPromptLogprobs(request.prompt_logprobs);
  wire.setPooling(static_cast<wire::Pooling>(request.pooling));
  if (request.timeout_ms) wire.getTimeoutMs().setValue(*request.timeout_ms);
}

/// Only the form is checked: values are the client's, and the model's frontend answers for them.
GenerationRequest get_request(In& in, wire::GenerationRequest::Reader wire) {
  GenerationRequest request;
  request.prompt = get_prompt(in, wire.getPrompt());
  request.chat_template_kwargs = in.text(wire.getChatTemplateKwargs(), "chat_template_kwargs");
  request.tools = in.text(wire.getTools(), "tools");
  request.max_tokens = get_optional<std::uint32_t>(in, wire.getMaxTokens());
  request.temperature = get_float(in, wire.getTemperature());
  request.top_p = get_float(in, wire.getTopP());
  request.min_p = get_float(in, wire.getMinP());
  request.repetition_penalty = get_float(in, wire.getRepetitionPenalty());
  request.presence_penalty = get_float(in, wire.getPresencePenalty());
  request.frequency_penalty = get_float(in, wire.getFrequencyPenalty());
  request.top_k = get_optional<std::int32_t>(in, wire.getTopK());
  request.seed = get_optional<std::uint64_t>(in, wire.getSeed());
  request.n = wire.getN();
  request.stop = get_texts(in, wire.getStop());
  request.grammar = in.text(wire.getGrammar(), "a grammar");
  request.grammar_of_calls = wire.getGrammarOfCalls();
  request.grammar_in_thought = wire.getGrammarInThought();
  request.priority = wire.getPriority();
  request.min_tokens = wire.getMinTokens();
  request.stop_token_ids = get_ids(in, wire.getStopTokenIds());
  request.allowed_token_ids = get_ids(in, wire.getAllowedTokenIds());
  request.bad_words = get_texts(in, wire.getBadWords());
  request.logit_bias = in.list<TokenBias>(wire.getLogitBias(), [](wire::TokenBias::Reader of) {
    return TokenBias{of.getToken(), of.getBias()};
  });
  request.ignore_eos = wire.getIgnoreEos();
  request.add_special_tokens = wire.getAddSpecialTokens();
  request.add_generation_prompt = wire.getAddGenerationPrompt();
  request.continue_final_message = wire.getContinueFinalMessage();
  request.truncate_prompt_tokens = wire.getTruncatePromptTokens();
  request.include_stop_str_in_output = wire.getIncludeStopStrInOutput();
  request.skip_special_tokens = wire.getSkipSpecialTokens();
  request.logprobs = wire.getLogprobs();
  request.prompt_logprobs = wire.getPromptLogprobs();
  request.pooling = get_pooling(in, wire.getPooling());
  request.timeout_ms = get_optional<std::uint32_t>(in, wire.getTimeoutMs());
  return request;
}

void put(Out& out, wire::GenerationEvent::Builder wire, const GenerationEvent& event) {
  wire.setChoice(event.choice);
  wire.setText(out.text(event.text, "the text"));
  put_list(event.tokens, wire.initTokens(event.tokens.size()),
           [&](auto w, const TokenOutput& token) { transport::put(out, w, token); });
  wire.setFinish(static_cast<wire::FinishReason>(event.finish));
  wire.setRequestDone(event.request_done);
  put_ints(wire.initPromptTokens(event.prompt_tokens.size()), event.prompt_tokens);
  put_list(event.prompt_logprobs, wire.initPromptLogprobs(event.prompt_logprobs.size()),
           [&](auto w, const TokenOutput& token) { transport::put(out, w, token); });
  auto timing = wire.initTiming();
  timing.setQueuedMs(event.timing.queued_ms);
  timing.setFirstTokenMs(event.timing.first_token_ms);
  timing.setTotalMs(event.timing.total_ms);
  if (event.error) transport::put(out, wire.getError().initValue(), *event.error);
  wire.setCachedTokens(event.cached_tokens);
  put_floats(wire.initHidden(event.hidden.size()), event.hidden);
}

double get_ms(In& in, double ms) {
  in.require(ms == -1 || (ms >= 0 && std::isfinite(ms)), "a time is negative or no number");
  return ms;
}

GenerationEvent get_event(In& in, wire::GenerationEvent::Reader wire) {
  const auto token = [&](auto w) { return get(in, w); };
  GenerationEvent event;
  event.choice = in.in_range(wire.getChoice(), 0, limits::kChoicesMax - 1, "choice");
  event.text = in.text(wire.getText(), "the text");
  event.tokens = in.list<TokenOutput>(wire.getTokens(), token);
  event.finish = in.enumeration(wire.getFinish(), FinishReason::kLength, "a finish reason");
  event.request_done = wire.getRequestDone();
  event.prompt_tokens = in.ints(wire.getPromptTokens(), 0, kTokenMax, "a token");
  event.prompt_logprobs = in.list<TokenOutput>(wire.getPromptLogprobs(), token);
  const auto timing = wire.getTiming();
  event.timing = {get_ms(in, timing.getQueuedMs()), get_ms(in, timing.getFirstTokenMs()),
                  get_ms(in, timing.getTotalMs())};
  event.error = get_optional_error(in, wire.getError());
  event.cached_tokens = wire.getCachedTokens();
  event.hidden = get_floats(in, wire.getHidden());
  return event;
}

}  // namespace

void put(Out& out, wire::ClientHello::Builder wire, const ClientHello& message) {
  put(out, wire.initProtocol(), message.protocol);
  wire.setProgram(out.name(message.program, "the program's name"));
}

ClientHello get(In& in, wire::ClientHello::Reader wire) {
  return {get(in, wire.getProtocol()), in.name(wire.getProgram(), "the program's name")};
}

void put(Out&, wire::ClientWelcome::Builder wire, const ClientWelcome& message) {
  wire.setSession(message.session);
}
ClientWelcome get(In&, wire::ClientWelcome::Reader wire) { return {wire.getSession()}; }

void put(Out&, wire::StatusQuery::Builder wire, const StatusQuery& message) {
  wire.setQuery(message.query);
}
StatusQuery get(In&, wire::StatusQuery::Reader wire) { return {wire.getQuery()}; }

void put(Out& out, wire::StatusReply::Builder wire, const StatusReply& message) {
  wire.setQuery(message.query);
  wire.setJson(out.text(message.json, "the status"));
}

StatusReply get(In& in, wire::StatusReply::Reader wire) {
  return {wire.getQuery(), in.text(wire.getJson(), "the status")};
}

void put(Out&, wire::StopQuery::Builder wire, const StopQuery& message) {
  wire.setQuery(message.query);
}
StopQuery get(In&, wire::StopQuery::Reader wire) { return {wire.getQuery()}; }

void put(Out&, wire::StopReply::Builder wire, const StopReply& message) {
  wire.setQuery(message.query);
  put_ints(wire.initPids(message.pids.size()), message.pids);
}

StopReply get(In& in, wire::StopReply::Reader wire) {
  return {wire.getQuery(), in.ints(wire.getPids(), 1, kInt32Max, "a process id")};
}

void put(Out& out, wire::ClientGenerate::Builder wire, const ClientGenerate& message) {
  wire.setQuery(message.query);
  put(out, wire.initRequest(), message.request);
}

ClientGenerate get(In& in, wire::ClientGenerate::Reader wire) {
  return {wire.getQuery(), get_request(in, wire.getRequest())};
}

void put(Out&, wire::ClientCancel::Builder wire, const ClientCancel& message) {
  wire.setQuery(message.query);
}
ClientCancel get(In&, wire::ClientCancel::Reader wire) { return {wire.getQuery()}; }

void put(Out& out, wire::ClientGeneration::Builder wire, const ClientGeneration& message) {
  wire.setQuery(message.query);
  put(out, wire.initEvent(), message.event);
}

ClientGeneration get(In& in, wire::ClientGeneration::Reader wire) {
  return {wire.getQuery(), get_event(in, wire.getEvent())};
}

void put(Out&, wire::Subscribe::Builder, const Subscribe&) {}
Subscribe get(In&, wire::Subscribe::Reader) { return {}; }

void put(Out& out, wire::ClusterNews::Builder wire, const ClusterNews& message) {
  auto event = wire.initEvent();
  event.setTimeUnixMs(message.event.time_unix_ms);
  event.setKind(out.name(message.event.kind, "an event's kind"));
  event.setText(out.sentence(message.event.text));
}

ClusterNews get(In& in, wire::ClusterNews::Reader wire) {
  const auto event = wire.getEvent();
  return {{event.getTimeUnixMs(), in.name(event.getKind(), "an event's kind"),
           in.sentence(event.getText())}};
}

void put(Out& out, wire::CrashReport::Builder wire, const CrashReport& message) {
  wire.setQuery(message.query);
  wire.setNode(message.node.value);
  wire.setIncarnation(message.incarnation.value);
  wire.setSignal(message.signal);
  wire.setReason(out.sentence(message.reason));
}

CrashReport get(In& in, wire::CrashReport::Reader wire) {
  return {wire.getQuery(), NodeId{wire.getNode()}, Incarnation{wire.getIncarnation()},
          wire.getSignal(), in.sentence(wire.getReason())};
}

void put(Out&, wire::DrainQuery::Builder wire, const DrainQuery& message) {
  wire.setQuery(message.query);
  wire.setNode(message.node.value);
}
DrainQuery get(In&, wire::DrainQuery::Reader wire) {
  return {wire.getQuery(), NodeId{wire.getNode()}};
}

void put(Out&, wire::RebalanceQuery::Builder wire, const RebalanceQuery& message) {
  wire.setQuery(message.query);
}
RebalanceQuery get(In&, wire::RebalanceQuery::Reader wire) { return {wire.getQuery()}; }

void put(Out& out, wire::OperationProgress::Builder wire, const OperationProgress& message) {
  wire.setQuery(message.query);
  wire.setDone(message.done);
  wire.setTotal(message.total);
  wire.setText(out.sentence(message.text));
  wire.setFinished(message.finished);
  if (message.error) put(out, wire.getError().initValue(), *message.error);
}

OperationProgress get(In& in, wire::OperationProgress::Reader wire) {
  return {wire.getQuery(),    wire.getDone(),
          wire.getTotal(),    in.sentence(wire.getText()),
          wire.getFinished(), get_optional_error(in, wire.getError())};
}

}  // namespace troupe::transport
