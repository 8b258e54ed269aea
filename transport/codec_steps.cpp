#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

void put(Out& out, wire::StepSequence::Builder wire, const StepSequence& sequence) {
  wire.setId(sequence.id.value);
  put_ints(wire.initBlockTable(sequence.block_table.size()), sequence.block_table);
  wire.setFirstPosition(sequence.first_position);
  put_ints(wire.initTokens(sequence.tokens.size()), sequence.tokens);
  wire.setPromptLength(sequence.prompt_length);
  transport::put(out, wire.initSampling(), sequence.sampling);
  wire.setSample(sequence.sample);
  wire.setPromptLogprobs(sequence.prompt_logprobs);
  put_ints(wire.initTargets(sequence.targets.size()), sequence.targets);
  wire.setHiddenRows(sequence.hidden_rows);
  wire.setCanary(sequence.canary);
  wire.setTableSlot(sequence.table_slot);
  wire.setTableBase(sequence.table_base);
}

StepSequence get_sequence(In& in, wire::StepSequence::Reader wire) {
  StepSequence s;
  s.id = SequenceId{wire.getId()};
  s.block_table = in.ints(wire.getBlockTable(), 0, kInt32Max, "a block");
  s.table_slot =
      in.in_range(wire.getTableSlot(), 0, limits::kStepSequencesMax - 1, "a table's slot");
  s.table_base = in.in_range(wire.getTableBase(), 0, limits::kStepBlocksMax, "a count of blocks");
  in.require(s.table_base > 0 || !s.block_table.empty(), "a sequence has no blocks");
  s.tokens = in.ints(wire.getTokens(), 0, kTokenMax, "a token");
  in.require(!s.tokens.empty(), "a sequence has no rows");
  s.first_position =
      in.in_range(wire.getFirstPosition(), 0,
                  kInt32Max - static_cast<std::int32_t>(s.tokens.size()), "a position");
  s.prompt_length = in.in_range(wire.getPromptLength(), 0, kInt32Max, "a prompt's length");
  s.sampling = get(in, wire.getSampling());
  s.sample = wire.getSample();
  s.prompt_logprobs = wire.getPromptLogprobs();
  s.targets = in.ints(wire.getTargets(), -1, kTokenMax, "a target");
  s.hidden_rows = in.in_range(wire.getHiddenRows(), 0, static_cast<std::int32_t>(s.tokens.size()),
                              "a count of hidden states");
  s.canary = wire.getCanary();
  in.require(s.targets.size() == (s.prompt_logprobs ? s.tokens.size() : 0),
             "a sequence has not as many targets as rows");
  return s;
}

void put(Out& out, wire::MaybeToken::Builder wire, const std::optional<TokenOutput>& token) {
  if (token) transport::put(out, wire.initToken(), *token);
}

std::optional<TokenOutput> get_maybe(In& in, wire::MaybeToken::Reader wire) {
  if (wire.isToken()) return get(in, wire.getToken());
  in.require(wire.isNone(), "a token has an unknown form");
  return std::nullopt;
}

SequenceResult get_result(In& in, wire::SequenceResult::Reader wire) {
  SequenceResult result;
  result.id = SequenceId{wire.getId()};
  result.sampled = get_maybe(in, wire.getSampled());
  result.prompt = in.list<std::optional<TokenOutput>>(wire.getPrompt(),
                                                      [&](auto w) { return get_maybe(in, w); });
  result.trouble = in.sentence(wire.getTrouble());
  result.waits = wire.getWaits();
  result.hidden = get_floats(in, wire.getHidden());
  result.unanswerable = wire.getUnanswerable();
  return result;
}

/// Rows of equal, plausible width; at least `element_bytes` are one number of one.
void check_rows(In& in, std::uint32_t rows, std::size_t element_bytes) {
  const std::size_t bytes = in.payload().bytes.size();
  in.require(bytes <= limits::kBulkPayloadBytesMax, "a payload is too long");
  if (rows == 0) return in.require(bytes == 0, "a payload has no rows");
  const std::size_t row_bytes = bytes / rows;
  in.require(row_bytes > 0 && bytes % rows == 0 && row_bytes % element_bytes == 0 &&
                 row_bytes <= static_cast<std::size_t>(limits::kDimensionMax) * sizeof(float),
             "a payload's size does not match its rows");
}

/// Bytes of parts, by rank.
std::vector<std::uint64_t> get_lengths(In& in, capnp::List<std::uint64_t>::Reader wire) {
  in.require(wire.size() <= limits::kTensorRanksMax, "an exchange has too many ranks");
  std::vector<std::uint64_t> lengths = in.ok() ? get_words(in, wire) : std::vector<std::uint64_t>();
  for (const std::uint64_t bytes : lengths)
    in.require(bytes == RankReady::kAny || bytes <= limits::kBulkPayloadBytesMax,
               "a part is too long");
  return lengths;
}

}  // namespace

void put(Out& out, wire::StepPlan::Builder wire, const StepPlan& message) {
  wire.setReplica(message.replica);
  wire.setVersion(message.version.value);
  wire.setStep(message.body.step.value);
  wire.setExpress(message.body.express);
  const auto& sequences = message.body.sequences;
  put_list(sequences, wire.initSequences(sequences.size()),
           [&](auto w, const StepSequence& sequence) { put(out, w, sequence); });
}

StepPlan get(In& in, wire::StepPlan::Reader wire) {
  StepPlan message;
  message.replica = wire.getReplica();
  message.version = PlacementVersion{wire.getVersion()};
  message.body.step = StepId{wire.getStep()};
  message.body.express = wire.getExpress();
  message.body.sequences =
      in.list<StepSequence>(wire.getSequences(), [&](auto w) { return get_sequence(in, w); });
  return message;
}

void put(Out&, wire::Hidden::Builder wire, const Hidden& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
  wire.setRows(message.rows);
  put_words(wire.initDigests(message.digests.size()), message.digests);
}

Hidden get(In& in, wire::Hidden::Reader wire) {
  in.require(wire.getRows() > 0, "a step has no rows");
  check_rows(in, wire.getRows(), sizeof(float));
  return {wire.getReplica(), StepId{wire.getStep()}, wire.getRows(), in.payload(),
          get_words(in, wire.getDigests())};
}

void put(Out&, wire::RankPart::Builder wire, const RankPart& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
  wire.setExchange(message.exchange);
}

RankPart get(In& in, wire::RankPart::Reader wire) {
  const std::size_t bytes = in.payload().bytes.size();
  in.require(bytes > 0 && bytes <= limits::kBulkPayloadBytesMax, "a part's size is impossible");
  return {wire.getReplica(), StepId{wire.getStep()}, wire.getExchange(), in.payload()};
}

void put(Out&, wire::RankReady::Builder wire, const RankReady& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
  wire.setExchange(message.exchange);
  put_words(wire.initTo(message.to.size()), message.to);
  put_words(wire.initFrom(message.from.size()), message.from);
}

RankReady get(In& in, wire::RankReady::Reader wire) {
  return {wire.getReplica(), StepId{wire.getStep()}, wire.getExchange(),
          get_lengths(in, wire.getTo()), get_lengths(in, wire.getFrom())};
}

void put(Out&, wire::RankGo::Builder wire, const RankGo& message) {
  wire.setReplica(message.replica);
  wire.setGroup(message.group);
  wire.setOrder(message.order);
  wire.setStep(message.step.value);
  wire.setExchange(message.exchange);
  wire.setFits(message.fits);
  put_words(wire.initFrom(message.from.size()), message.from);
  wire.setGivenUp(message.given_up);
}

RankGo get(In& in, wire::RankGo::Reader wire) {
  return {wire.getReplica(),
          wire.getGroup(),
          wire.getOrder(),
          StepId{wire.getStep()},
          wire.getExchange(),
          wire.getFits(),
          get_lengths(in, wire.getFrom()),
          wire.getGivenUp()};
}

void put(Out& out, wire::RankGroup::Builder wire, const RankGroup& message) {
  wire.setReplica(message.replica);
  wire.setGroup(message.group);
  wire.setState(static_cast<wire::RankGroup::State>(message.state));
  wire.setId(data_of(message.id));
  wire.setReason(out.sentence(message.reason));
}

RankGroup get(In& in, wire::RankGroup::Reader wire) {
  RankGroup message;
  message.replica = wire.getReplica();
  message.group = wire.getGroup();
  message.state = in.enumeration(wire.getState(), RankGroup::State::kBroken, "a group's state");
  message.id = get_communicator_id(in, wire.getId());
  message.reason = in.sentence(wire.getReason());
  return message;
}

void put(Out& out, wire::StepResult::Builder wire, const StepResult& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
  put_words(wire.initDigests(message.digests.size()), message.digests);
  put_list(message.sequences, wire.initSequences(message.sequences.size()),
           [&](auto w, const SequenceResult& result) {
             w.setId(result.id.value);
             put(out, w.initSampled(), result.sampled);
             put_list(result.prompt, w.initPrompt(result.prompt.size()),
                      [&](auto wt, const auto& token) { put(out, wt, token); });
             w.setTrouble(out.sentence(result.trouble));
             w.setWaits(result.waits);
             put_floats(w.initHidden(result.hidden.size()), result.hidden);
             w.setUnanswerable(result.unanswerable);
           });
}

StepResult get(In& in, wire::StepResult::Reader wire) {
  return {wire.getReplica(), StepId{wire.getStep()},
          in.list<SequenceResult>(wire.getSequences(), [&](auto w) { return get_result(in, w); }),
          get_words(in, wire.getDigests())};
}

void put(Out&, wire::StepProgress::Builder wire, const StepProgress& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
}
StepProgress get(In&, wire::StepProgress::Reader wire) {
  return {wire.getReplica(), StepId{wire.getStep()}};
}

void put(Out& out, wire::StepFailed::Builder wire, const StepFailed& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
  put(out, wire.initError(), message.error);
}

StepFailed get(In& in, wire::StepFailed::Reader wire) {
  return {wire.getReplica(), StepId{wire.getStep()}, get(in, wire.getError())};
}

void put(Out&, wire::StepAbort::Builder wire, const StepAbort& message) {
  wire.setReplica(message.replica);
  wire.setStep(message.step.value);
}
StepAbort get(In&, wire::StepAbort::Reader wire) {
  return {wire.getReplica(), StepId{wire.getStep()}};
}

void put(Out&, wire::Dispatch::Builder wire, const Dispatch& message) {
  wire.setCall(message.call);
  wire.setVersion(message.version.value);
  wire.setExpress(message.express);
  wire.setLayer(message.layer);
  wire.setRows(message.rows);
  put_list(message.pairs, wire.initPairs(message.pairs.size()), [](auto w, const ExpertPair& pair) {
    w.setRow(pair.row);
    w.setExpert(pair.expert);
  });
}

Dispatch get(In& in, wire::Dispatch::Reader wire) {
  Dispatch message;
  message.call = wire.getCall();
  message.version = PlacementVersion{wire.getVersion()};
  message.express = wire.getExpress();
  message.layer = in.in_range(wire.getLayer(), 0, limits::kLayersMax - 1, "a layer");
  message.rows = wire.getRows();
  message.pairs = in.list<ExpertPair>(wire.getPairs(), [&](auto w) {
    in.require(w.getRow() < message.rows, "a pair names a row that is not there");
    return ExpertPair{w.getRow(),
                      in.in_range(w.getExpert(), 0, limits::kExpertsMax - 1, "an expert")};
  });
  in.require(!message.pairs.empty(), "a dispatch asks for nothing");
  check_rows(in, message.rows, dtype_size(DType::kBf16));
  message.payload = in.payload();
  return message;
}

void put(Out&, wire::ExpertOutput::Builder wire, const ExpertOutput& message) {
  wire.setCall(message.call);
  wire.setPairs(message.pairs);
}

ExpertOutput get(In& in, wire::ExpertOutput::Reader wire) {
  in.require(wire.getPairs() > 0, "an expert output has no rows");
  check_rows(in, wire.getPairs(), dtype_size(DType::kBf16));
  return {wire.getCall(), wire.getPairs(), in.payload()};
}

void put(Out&, wire::ExpertProgress::Builder wire, const ExpertProgress& message) {
  wire.setCall(message.call);
}
ExpertProgress get(In&, wire::ExpertProgress::Reader wire) { return {wire.getCall()}; }

void put(Out& out, wire::NotHere::Builder wire, const NotHere& message) {
  wire.setCall(message.call);
  put_ints(wire.initExperts(message.experts.size()), message.experts);
  wire.setReason(out.sentence(message.reason));
}

NotHere get(In& in, wire::NotHere::Reader wire) {
  return {wire.getCall(), in.ints(wire.getExperts(), 0, limits::kExpertsMax - 1, "an expert"),
          in.sentence(wire.getReason())};
}

}  // namespace troupe::transport
