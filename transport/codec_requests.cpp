#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

SequenceEvent get_event(In& in, wire::SequenceEvent::Reader wire) {
  SequenceEvent event;
  event.sequence = SequenceId{wire.getSequence()};
  event.attempt = wire.getAttempt();
  event.started = wire.getStarted();
  event.index = in.in_range(wire.getIndex(), 0, kInt32Max, "a token's index");
  event.tokens = get_tokens(in, wire.getTokens());
  event.finish = in.enumeration(wire.getFinish(), FinishReason::kLength, "a finish reason");
  event.prompt_index = in.in_range(wire.getPromptIndex(), 0, kInt32Max, "a token's index");
  event.prompt_logprobs = get_tokens(in, wire.getPromptLogprobs());
  event.hidden_index = wire.getHiddenIndex();
  event.hidden = get_floats(in, wire.getHidden());
  event.error = get_optional_error(in, wire.getError());
  event.cached_tokens = in.in_range(wire.getCachedTokens(), -1, kInt32Max, "a count of tokens");
  return event;
}

}  // namespace

void put(Out& out, wire::Submit::Builder wire, const Submit& message) {
  wire.setSequence(message.sequence.value);
  wire.setAttempt(message.attempt);
  put_ints(wire.initPrompt(message.prompt.size()), message.prompt);
  put_ints(wire.initOutput(message.output.size()), message.output);
  put(out, wire.initSampling(), message.sampling);
  wire.setMaxTokens(message.max_tokens);
  put_ints(wire.initStopTokens(message.stop_tokens.size()), message.stop_tokens);
  wire.setPromptLogprobs(message.prompt_logprobs);
  wire.setPooling(static_cast<wire::Pooling>(message.pooling));
  wire.setHiddenWidth(message.hidden_width);
  wire.setOwner(message.owner);
  wire.setWeight(message.weight);
  wire.setPriority(message.priority);
}

Submit get(In& in, wire::Submit::Reader wire) {
  Submit message;
  message.sequence = SequenceId{wire.getSequence()};
  message.attempt = wire.getAttempt();
  message.prompt = in.ints(wire.getPrompt(), 0, kTokenMax, "a token");
  in.require(!message.prompt.empty(), "a prompt is empty");
  message.output = in.ints(wire.getOutput(), 0, kTokenMax, "a token");
  message.sampling = get(in, wire.getSampling());
  message.max_tokens = in.in_range(wire.getMaxTokens(), 0, kInt32Max, "max_tokens");
  message.stop_tokens = in.ints(wire.getStopTokens(), 0, kTokenMax, "a token");
  message.prompt_logprobs =
      in.in_range(wire.getPromptLogprobs(), -1, kTopLogprobsMax, "prompt_logprobs");
  message.pooling = get_pooling(in, wire.getPooling());
  message.hidden_width = get_hidden_width(in, wire.getHiddenWidth(), message.pooling);
  message.owner = wire.getOwner();
  message.weight = wire.getWeight();
  in.require(message.weight >= kWeightMin && message.weight <= kWeightMax, "a weight is wrong");
  message.priority = in.in_range(wire.getPriority(), -kPriorityMax, kPriorityMax, "a priority");
  return message;
}

void put(Out&, wire::Cancel::Builder wire, const Cancel& message) {
  wire.setSequence(message.sequence.value);
  wire.setAttempt(message.attempt);
}

Cancel get(In&, wire::Cancel::Reader wire) {
  return {SequenceId{wire.getSequence()}, wire.getAttempt()};
}

void put(Out& out, wire::SequenceEvents::Builder wire, const SequenceEvents& message) {
  wire.setReplica(message.replica);
  put_list(message.events, wire.initEvents(message.events.size()),
           [&](auto w, const SequenceEvent& event) {
             w.setSequence(event.sequence.value);
             w.setAttempt(event.attempt);
             w.setStarted(event.started);
             w.setIndex(event.index);
             put_tokens(out, w.initTokens(event.tokens.size()), event.tokens);
             w.setFinish(static_cast<wire::FinishReason>(event.finish));
             w.setPromptIndex(event.prompt_index);
             put_tokens(out, w.initPromptLogprobs(event.prompt_logprobs.size()),
                        event.prompt_logprobs);
             w.setHiddenIndex(event.hidden_index);
             put_floats(w.initHidden(event.hidden.size()), event.hidden);
             if (event.error) put(out, w.getError().initValue(), *event.error);
             w.setCachedTokens(event.cached_tokens);
           });
}

SequenceEvents get(In& in, wire::SequenceEvents::Reader wire) {
  return {wire.getReplica(),
          in.list<SequenceEvent>(wire.getEvents(), [&](auto w) { return get_event(in, w); })};
}

}  // namespace troupe::transport
