#include "transport/codec.h"

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cassert>
#include <cstring>

#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

/// One overload a kind: opens the envelope's union at it.
void put_kind(Out& out, wire::Envelope::Builder wire, const Greeting& message) {
  put(out, wire.initGreeting(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Join& message) {
  put(out, wire.initJoin(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Refused& message) {
  put(out, wire.initRefused(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Welcome& message) {
  put(out, wire.initWelcome(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Renew& message) {
  put(out, wire.initRenew(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Renewed& message) {
  put(out, wire.initRenewed(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Leave& message) {
  put(out, wire.initLeave(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Load& message) {
  put(out, wire.initLoad(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const LoadProgress& message) {
  put(out, wire.initLoadProgress(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Loaded& message) {
  put(out, wire.initLoaded(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const LoadFailed& message) {
  put(out, wire.initLoadFailed(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Activate& message) {
  put(out, wire.initActivate(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Retire& message) {
  put(out, wire.initRetire(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Stop& message) {
  put(out, wire.initStop(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const PeerUnreachable& message) {
  put(out, wire.initPeerUnreachable(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Submit& message) {
  put(out, wire.initSubmit(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Cancel& message) {
  put(out, wire.initCancel(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const SequenceEvents& message) {
  put(out, wire.initSequenceEvents(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StepPlan& message) {
  put(out, wire.initStepPlan(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Hidden& message) {
  put(out, wire.initHidden(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StepResult& message) {
  put(out, wire.initStepResult(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StepFailed& message) {
  put(out, wire.initStepFailed(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StepAbort& message) {
  put(out, wire.initStepAbort(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Dispatch& message) {
  put(out, wire.initDispatch(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ExpertOutput& message) {
  put(out, wire.initExpertOutput(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const NotHere& message) {
  put(out, wire.initNotHere(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClientHello& message) {
  put(out, wire.initClientHello(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClientWelcome& message) {
  put(out, wire.initClientWelcome(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StatusQuery& message) {
  put(out, wire.initStatusQuery(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StatusReply& message) {
  put(out, wire.initStatusReply(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StopQuery& message) {
  put(out, wire.initStopQuery(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const StopReply& message) {
  put(out, wire.initStopReply(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClientGenerate& message) {
  put(out, wire.initClientGenerate(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClientCancel& message) {
  put(out, wire.initClientCancel(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClientGeneration& message) {
  put(out, wire.initClientGeneration(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Subscribe& message) {
  put(out, wire.initSubscribe(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ClusterNews& message) {
  put(out, wire.initClusterNews(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Undeliverable& message) {
  put(out, wire.initUndeliverable(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Activated& message) {
  put(out, wire.initActivated(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const MemberLost& message) {
  put(out, wire.initMemberLost(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Connect& message) {
  put(out, wire.initConnect(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const ExpertCounts& message) {
  put(out, wire.initExpertCounts(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const Avoid& message) {
  put(out, wire.initAvoid(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const DrainQuery& message) {
  put(out, wire.initDrainQuery(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const RebalanceQuery& message) {
  put(out, wire.initRebalanceQuery(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const OperationProgress& message) {
  put(out, wire.initOperationProgress(), message);
}
void put_kind(Out& out, wire::Envelope::Builder wire, const PeerPing& message) {
  put(out, wire.initPeerPing(), message);
}

/// The message in the envelope; null if this program does not know its kind.
MessagePtr get_kind(In& in, wire::Envelope::Reader wire) {
  using Kind = wire::Envelope;
  switch (wire.which()) {
    case Kind::NONE:
      break;
    case Kind::GREETING:
      return message_of(get(in, wire.getGreeting()));
    case Kind::JOIN:
      return message_of(get(in, wire.getJoin()));
    case Kind::REFUSED:
      return message_of(get(in, wire.getRefused()));
    case Kind::WELCOME:
      return message_of(get(in, wire.getWelcome()));
    case Kind::RENEW:
      return message_of(get(in, wire.getRenew()));
    case Kind::RENEWED:
      return message_of(get(in, wire.getRenewed()));
    case Kind::LEAVE:
      return message_of(get(in, wire.getLeave()));
    case Kind::LOAD:
      return message_of(get(in, wire.getLoad()));
    case Kind::LOAD_PROGRESS:
      return message_of(get(in, wire.getLoadProgress()));
    case Kind::LOADED:
      return message_of(get(in, wire.getLoaded()));
    case Kind::LOAD_FAILED:
      return message_of(get(in, wire.getLoadFailed()));
    case Kind::ACTIVATE:
      return message_of(get(in, wire.getActivate()));
    case Kind::RETIRE:
      return message_of(get(in, wire.getRetire()));
    case Kind::STOP:
      return message_of(get(in, wire.getStop()));
    case Kind::PEER_UNREACHABLE:
      return message_of(get(in, wire.getPeerUnreachable()));
    case Kind::SUBMIT:
      return message_of(get(in, wire.getSubmit()));
    case Kind::CANCEL:
      return message_of(get(in, wire.getCancel()));
    case Kind::SEQUENCE_EVENTS:
      return message_of(get(in, wire.getSequenceEvents()));
    case Kind::STEP_PLAN:
      return message_of(get(in, wire.getStepPlan()));
    case Kind::HIDDEN:
      return message_of(get(in, wire.getHidden()));
    case Kind::STEP_RESULT:
      return message_of(get(in, wire.getStepResult()));
    case Kind::STEP_FAILED:
      return message_of(get(in, wire.getStepFailed()));
    case Kind::STEP_ABORT:
      return message_of(get(in, wire.getStepAbort()));
    case Kind::DISPATCH:
      return message_of(get(in, wire.getDispatch()));
    case Kind::EXPERT_OUTPUT:
      return message_of(get(in, wire.getExpertOutput()));
    case Kind::NOT_HERE:
      return message_of(get(in, wire.getNotHere()));
    case Kind::CLIENT_HELLO:
      return message_of(get(in, wire.getClientHello()));
    case Kind::CLIENT_WELCOME:
      return message_of(get(in, wire.getClientWelcome()));
    case Kind::STATUS_QUERY:
      return message_of(get(in, wire.getStatusQuery()));
    case Kind::STATUS_REPLY:
      return message_of(get(in, wire.getStatusReply()));
    case Kind::STOP_QUERY:
      return message_of(get(in, wire.getStopQuery()));
    case Kind::STOP_REPLY:
      return message_of(get(in, wire.getStopReply()));
    case Kind::CLIENT_GENERATE:
      return message_of(get(in, wire.getClientGenerate()));
    case Kind::CLIENT_CANCEL:
      return message_of(get(in, wire.getClientCancel()));
    case Kind::CLIENT_GENERATION:
      return message_of(get(in, wire.getClientGeneration()));
    case Kind::SUBSCRIBE:
      return message_of(get(in, wire.getSubscribe()));
    case Kind::CLUSTER_NEWS:
      return message_of(get(in, wire.getClusterNews()));
    case Kind::UNDELIVERABLE:
      return message_of(get(in, wire.getUndeliverable()));
    case Kind::ACTIVATED:
      return message_of(get(in, wire.getActivated()));
    case Kind::MEMBER_LOST:
      return message_of(get(in, wire.getMemberLost()));
    case Kind::CONNECT:
      return message_of(get(in, wire.getConnect()));
    case Kind::EXPERT_COUNTS:
      return message_of(get(in, wire.getExpertCounts()));
    case Kind::AVOID:
      return message_of(get(in, wire.getAvoid()));
    case Kind::DRAIN_QUERY:
      return message_of(get(in, wire.getDrainQuery()));
    case Kind::REBALANCE_QUERY:
      return message_of(get(in, wire.getRebalanceQuery()));
    case Kind::OPERATION_PROGRESS:
      return message_of(get(in, wire.getOperationProgress()));
    case Kind::PEER_PING:
      return message_of(get(in, wire.getPeerPing()));
  }
  in.fail("its kind (" + std::to_string(static_cast<unsigned>(wire.which())) +
          ") is not one that this version knows");
  return nullptr;
}

Error broken(const std::string& reason) {
  return corrupt("A message breaks its format: " + reason + ".");
}

/// The first line of what Cap'n Proto says, without its source positions.
std::string describe(const kj::Exception& exception) {
  const std::string text = exception.getDescription().cStr();
  return text.substr(0, text.find_first_of(";\n"));
}

Result<Envelope> decode_words(kj::ArrayPtr<const capnp::word> words, const Payload& payload) {
  capnp::ReaderOptions options;
  // Every word is read once, some lists' headers twice; pointers that share their target add up.
  options.traversalLimitInWords = 2 * words.size() + 64;
  options.nestingLimit = 16;
  capnp::FlatArrayMessageReader reader(words, options);
  if (reader.getEnd() != words.end()) return broken("bytes follow its end");

  In in(words.size() * sizeof(capnp::word), payload);
  const auto wire = reader.getRoot<wire::Envelope>();
  Envelope envelope;
  envelope.from = get(in, wire.getFrom());
  envelope.to = get(in, wire.getTo());
  envelope.message = get_kind(in, wire);
  if (!in.ok()) return broken(*in.fault());
  if (!payload.empty() && !payload_of(*envelope.message))
    return broken("a payload came with a message that has none");
  return envelope;
}

}  // namespace

void put(Out& out, wire::Undeliverable::Builder wire, const Undeliverable& message) {
  put(out, wire.initTo(), message.to);
  wire.setKind(message.kind);
  wire.setReference(message.reference);
  put(out, wire.initError(), message.error);
}

Undeliverable get(In& in, wire::Undeliverable::Reader wire) {
  return {get(in, wire.getTo()), wire.getKind(), wire.getReference(), get(in, wire.getError())};
}

Result<std::vector<std::byte>> encode(const Envelope& envelope) {
  assert(envelope.message);
  try {
    Out out;
    capnp::MallocMessageBuilder builder;
    auto wire = builder.initRoot<wire::Envelope>();
    put(out, wire.initFrom(), envelope.from);
    put(out, wire.initTo(), envelope.to);
    std::visit([&](const auto& message) { put_kind(out, wire, message); }, *envelope.message);
    if (out.fault()) return invalid_argument("A message cannot be sent: " + *out.fault() + ".");

    const std::size_t size = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
    if (size > limits::kBulkHeaderBytesMax)
      return resource_exhausted("A message of " + std::to_string(size) + " bytes is longer than " +
                                std::to_string(limits::kBulkHeaderBytesMax) +
                                " bytes and cannot be sent.");
    std::vector<std::byte> bytes(size);
    kj::ArrayOutputStream stream({reinterpret_cast<kj::byte*>(bytes.data()), bytes.size()});
    capnp::writeMessage(stream, builder);
    return bytes;
  } catch (const kj::Exception& exception) {
    return resource_exhausted("A message cannot be sent: " + describe(exception) + ".");
  }
}

Result<Envelope> decode(std::span<const std::byte> bytes, Payload payload) {
  if (bytes.size() > limits::kBulkHeaderBytesMax) return broken("it is too long");
  if (bytes.size() % sizeof(capnp::word) != 0) return broken("its length is no multiple of 8");
  const std::size_t words = bytes.size() / sizeof(capnp::word);
  try {
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(capnp::word) == 0)
      return decode_words({reinterpret_cast<const capnp::word*>(bytes.data()), words}, payload);
    auto aligned = kj::heapArray<capnp::word>(words);
    std::memcpy(aligned.begin(), bytes.data(), bytes.size());
    return decode_words(aligned, payload);
  } catch (const kj::Exception& exception) {
    return broken(describe(exception));
  }
}

const Payload* payload_of(const Message& message) {
  if (const auto* hidden = std::get_if<Hidden>(&message)) return &hidden->payload;
  if (const auto* dispatch = std::get_if<Dispatch>(&message)) return &dispatch->payload;
  if (const auto* output = std::get_if<ExpertOutput>(&message)) return &output->payload;
  return nullptr;
}

}  // namespace troupe::transport
