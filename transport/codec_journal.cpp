#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstring>
#include <optional>

#include "runtime/unix_time.h"
#include "schema/journal.capnp.h"
#include "transport/codec_parts.h"
#include "transport/journal_records.h"

namespace troupe::transport {
namespace {

std::int64_t time(Out& out, std::int64_t unix_ms) {
  if (unix_ms < 0 || unix_ms > kUnixMsMax) out.fail("a time is out of range");
  return unix_ms;
}

void put(Out& out, wire::RequestName::Builder wire, const RequestName& name) {
  wire.setId(out.name(name.id, "a request's id"));
  wire.setIndex(name.index);
  wire.setCount(name.count);
  wire.setOwner(name.owner);
  wire.setKey(out.name(name.key, "a request's key"));
  wire.setBodyLow(name.body.low);
  wire.setBodyHigh(name.body.high);
  wire.setForm(out.text(name.form, "a request's form"));
}

RequestName get(In& in, wire::RequestName::Reader wire) {
  RequestName name;
  name.id = in.name(wire.getId(), "a request's id");
  name.count = in.in_range(wire.getCount(), 1, limits::kPromptsMax, "a count of prompts");
  name.index = in.in_range(wire.getIndex(), 0, name.count - 1, "a prompt's index");
  name.owner = wire.getOwner();
  name.key = in.name(wire.getKey(), "a request's key");
  name.body = {wire.getBodyLow(), wire.getBodyHigh()};
  name.form = in.text(wire.getForm(), "a request's form");
  return name;
}

void put(Out& out, wire::PreparedRequest::Builder wire, const PreparedRequest& prepared) {
  put_ints(wire.initPrompt(prepared.prompt.size()), prepared.prompt);
  put(out, wire.initSampling(), prepared.sampling);
  wire.setMaxTokens(prepared.max_tokens);
  wire.setN(prepared.n);
  auto stop = wire.initStop(prepared.stop.size());
  for (std::size_t i = 0; i < prepared.stop.size(); ++i)
    stop.set(i, out.text(prepared.stop[i], "a stop string"));
  put_ints(wire.initStopTokens(prepared.stop_tokens.size()), prepared.stop_tokens);
  put_ints(wire.initKeepSpecial(prepared.keep_special.size()), prepared.keep_special);
  wire.setPromptLogprobs(prepared.prompt_logprobs);
  wire.setPooling(static_cast<wire::Pooling>(prepared.pooling));
  wire.setHiddenWidth(prepared.hidden_width);
  wire.setTimeoutMs(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(prepared.timeout).count()));
  wire.setStreams(prepared.streams);
  wire.setIncludeStopStrInOutput(prepared.include_stop_str_in_output);
  wire.setSkipSpecialTokens(prepared.skip_special_tokens);
  wire.setPriority(prepared.priority);
  if (prepared.name) put(out, wire.getName().initValue(), *prepared.name);
}

std::shared_ptr<const PreparedRequest> get(In& in, wire::PreparedRequest::Reader wire) {
  constexpr std::uint64_t kTimeoutMsMax = 1ull << 40;
  auto prepared = std::make_shared<PreparedRequest>();
  prepared->prompt = in.ints(wire.getPrompt(), 0, kTokenMax, "a token");
  in.require(!prepared->prompt.empty(), "a prompt is empty");
  prepared->sampling = get(in, wire.getSampling());
  prepared->seed = prepared->sampling.seed;
  prepared->max_tokens = in.in_range(wire.getMaxTokens(), 0, kInt32Max, "max_tokens");
  prepared->n = in.in_range(wire.getN(), 1, limits::kChoicesMax, "n");
  prepared->stop = in.list<std::string>(
      wire.getStop(), [&](capnp::Text::Reader text) { return in.text(text, "a stop string"); });
  for (const std::string& stop : prepared->stop)
    in.require(!stop.empty(), "a stop string is empty");
  prepared->stop_tokens = in.ints(wire.getStopTokens(), 0, kTokenMax, "a token");
  prepared->keep_special = in.ints(wire.getKeepSpecial(), 0, kTokenMax, "a token");
  prepared->prompt_logprobs =
      in.in_range(wire.getPromptLogprobs(), -1, kTopLogprobsMax, "prompt_logprobs");
  prepared->pooling = get_pooling(in, wire.getPooling());
  prepared->hidden_width = get_hidden_width(in, wire.getHiddenWidth(), prepared->pooling);
  prepared->timeout =
      std::chrono::milliseconds(in.in_range(wire.getTimeoutMs(), 0, kTimeoutMsMax, "a timeout"));
  prepared->streams = wire.getStreams();
  prepared->include_stop_str_in_output = wire.getIncludeStopStrInOutput();
  prepared->skip_special_tokens = wire.getSkipSpecialTokens();
  prepared->priority = in.in_range(wire.getPriority(), -kPriorityMax, kPriorityMax, "a priority");
  const auto name = wire.getName();
  if (name.isValue())
    prepared->name = std::make_shared<const RequestName>(get(in, name.getValue()));
  else
    in.require(name.isNone(), "a name has an unknown form");
  return prepared;
}

void put(Out& out, wire::JournalRecord::Builder wire, const JournalAccepted& record) {
  auto accepted = wire.initAccepted();
  accepted.setRequest(record.request);
  accepted.setFirstSequence(record.first_sequence.value);
  accepted.setAcceptedUnixMs(time(out, record.accepted_unix_ms));
  put(out, accepted.initPrepared(), *record.prepared);
}

void put(Out&, wire::JournalRecord::Builder wire, const JournalSubmitted& record) {
  auto submitted = wire.initSubmitted();
  submitted.setSequence(record.sequence.value);
  submitted.setAttempt(record.attempt);
}

void put(Out& out, wire::JournalRecord::Builder wire, const JournalPrompt& record) {
  auto prompt = wire.initPrompt();
  prompt.setRequest(record.request);
  prompt.setIndex(record.index);
  put_tokens(out, prompt.initLogprobs(record.logprobs.size()), record.logprobs);
}

void put(Out&, wire::JournalRecord::Builder wire, const JournalHidden& record) {
  auto hidden = wire.initHidden();
  hidden.setRequest(record.request);
  hidden.setIndex(record.index);
  put_floats(hidden.initValues(record.values.size()), record.values);
}

void put(Out& out, wire::JournalRecord::Builder wire, const JournalTokens& record) {
  auto tokens = wire.initTokens();
  tokens.setSequence(record.sequence.value);
  tokens.setIndex(record.index);
  put_tokens(out, tokens.initTokens(record.tokens.size()), record.tokens);
}

void put(Out&, wire::JournalRecord::Builder wire, const JournalFinished& record) {
  auto finished = wire.initFinished();
  finished.setSequence(record.sequence.value);
  finished.setReason(static_cast<wire::FinishReason>(record.reason));
  finished.setTokens(record.tokens);
}

void put(Out& out, wire::JournalRecord::Builder wire, const JournalEnded& record) {
  auto ended = wire.initEnded();
  ended.setRequest(record.request);
  ended.setEndedUnixMs(time(out, record.ended_unix_ms));
  if (record.error) put(out, ended.getError().initValue(), *record.error);
}

void put(Out&, wire::JournalRecord::Builder wire, const JournalForgotten& record) {
  wire.initForgotten().setRequest(record.request);
}

void put(Out&, wire::JournalRecord::Builder wire, const JournalCrashes& record) {
  auto crashes = wire.initCrashes();
  crashes.setRequest(record.request);
  crashes.setCrashes(record.crashes);
  crashes.setTerm(record.term);
}

/// None: it is of a kind that this program does not know.
std::optional<JournalRecord> get_record(In& in, wire::JournalRecord::Reader wire) {
  switch (wire.which()) {
    case wire::JournalRecord::NONE:
      in.fail("it says nothing");
      break;
    case wire::JournalRecord::ACCEPTED: {
      const auto r = wire.getAccepted();
      return JournalAccepted{
          r.getRequest(), SequenceId{r.getFirstSequence()},
          in.in_range(r.getAcceptedUnixMs(), 0, kUnixMsMax, "a time"), get(in, r.getPrepared())};
    }
    case wire::JournalRecord::SUBMITTED: {
      const auto r = wire.getSubmitted();
      return JournalSubmitted{SequenceId{r.getSequence()}, r.getAttempt()};
    }
    case wire::JournalRecord::PROMPT: {
      const auto r = wire.getPrompt();
      return JournalPrompt{r.getRequest(),
                           in.in_range(r.getIndex(), 0, kInt32Max, "a token's index"),
                           get_tokens(in, r.getLogprobs())};
    }
    case wire::JournalRecord::HIDDEN: {
      const auto r = wire.getHidden();
      return JournalHidden{r.getRequest(), r.getIndex(), get_floats(in, r.getValues())};
    }
    case wire::JournalRecord::TOKENS: {
      const auto r = wire.getTokens();
      return JournalTokens{SequenceId{r.getSequence()},
                           in.in_range(r.getIndex(), 0, kInt32Max, "a token's index"),
                           get_tokens(in, r.getTokens())};
    }
    case wire::JournalRecord::FINISHED: {
      const auto r = wire.getFinished();
      return JournalFinished{
          SequenceId{r.getSequence()},
          in.enumeration(r.getReason(), FinishReason::kLength, "a finish reason"),
          r.getTokens()};
    }
    case wire::JournalRecord::ENDED: {
      const auto r = wire.getEnded();
      return JournalEnded{r.getRequest(),
                          in.in_range(r.getEndedUnixMs(), 0, kUnixMsMax, "a time"),
                          get_optional_error(in, r.getError())};
    }
    case wire::JournalRecord::FORGOTTEN:
      return JournalForgotten{wire.getForgotten().getRequest()};
    case wire::JournalRecord::CRASHES: {
      const auto r = wire.getCrashes();
      return JournalCrashes{r.getRequest(), r.getCrashes(), r.getTerm()};
    }
  }
  return std::nullopt;
}

Error broken_record(const std::string& reason) {
  return corrupt("A record of the journal breaks its format: " + reason + ".");
}

}  // namespace

Result<std::vector<std::byte>> encode(const JournalRecord& record) {
  try {
    if (since(record) > kProtocol.newest)
      return invalid_argument("A record cannot be kept: its kind is not known yet.");
    Out out;
    capnp::MallocMessageBuilder builder;
    auto wire = builder.initRoot<wire::JournalRecord>();
    std::visit([&](const auto& r) { put(out, wire, r); }, record);
    if (out.fault()) return invalid_argument("A record cannot be kept: " + *out.fault() + ".");
    return serialize(builder, limits::kJournalRecordBytesMax, "A record", "kept");
  } catch (const kj::Exception& exception) {
    return resource_exhausted("A record cannot be kept: " + describe(exception) + ".");
  }
}

Result<JournalRecord> decode_record(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::kJournalRecordBytesMax) return broken_record("it is too long");
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0)
    return broken_record("its length is no multiple of 8");
  try {
    auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 2 * words.size() + 64;
    options.nestingLimit = 16;
    capnp::FlatArrayMessageReader reader(words, options);
    const Payload none;
    In in(bytes.size(), none);
    const auto wire = reader.getRoot<wire::JournalRecord>();
    auto record = get_record(in, wire);
    if (!in.ok()) return broken_record(*in.fault());
    // A program that speaks an older protocol than these sources was not built with the kind.
    if (!record || since(*record) > kProtocol.newest)
      return refused("A record of the journal is of a kind (" +
                     std::to_string(static_cast<unsigned>(wire.which())) +
                     ") that this version of Troupe does not know.");
    return std::move(*record);
  } catch (const kj::Exception& exception) {
    return broken_record(describe(exception));
  }
}

Status can_keep(const PreparedRequest& prepared) {
  const std::shared_ptr<const PreparedRequest> lent(std::shared_ptr<const void>(), &prepared);
  const auto bytes = encode(JournalAccepted{1, SequenceId{1}, 0, lent});
  if (!bytes.ok()) return bytes.error();
  const auto read = decode_record(*bytes);
  return read.ok() ? Status() : invalid_argument(read.error().message);
}

}  // namespace troupe::transport
