#pragma once

#include <capnp/message.h>
#include <kj/exception.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/key_share.h"
#include "runtime/limits.h"
#include "schema/client.capnp.h"
#include "schema/engine-options.capnp.h"
#include "schema/envelope.capnp.h"
#include "transport/message.h"

/// The parts of the codec, for its own files only: a `put` and a `get` for every struct.
namespace troupe::transport {

/// What is checked while a message is written: only what a program could get wrong. The first
/// fault counts.
class Out {
 public:
  /// Names and paths: short, no zero bytes. Nothing is written if it breaks the rule.
  capnp::Text::Reader name(const std::string& text, const char* what);
  /// Content: any UTF-8.
  capnp::Text::Reader text(const std::string& text, const char* what);
  /// An explanation, which may quote foreign bytes: repaired and cut rather than refused.
  capnp::Text::Reader sentence(const std::string& text);

  void fail(std::string reason);
  const std::optional<std::string>& fault() const { return fault_; }

 private:
  std::optional<std::string> fault_;
  std::deque<std::string> repaired_;  ///< kept until the message is written
};

/// What is checked while a message is read: everything. After the first fault reading goes on with
/// harmless values and ends soon.
class In {
 public:
  In(std::size_t input_bytes, const Payload& payload);

  bool ok() const { return !fault_; }
  const std::optional<std::string>& fault() const { return fault_; }
  const Payload& payload() const { return payload_; }

  void fail(std::string reason);
  void require(bool condition, const char* reason) {
    if (!condition) fail(reason);
  }
  template <class T>
  T in_range(T value, std::type_identity_t<T> low, std::type_identity_t<T> high, const char* what) {
    if (value >= low && value <= high) return value;  // false for NaN
    fail(std::string(what) + " is out of range");
    return low;
  }

  std::string name(capnp::Text::Reader text, const char* what);
  std::string text(capnp::Text::Reader text, const char* what);
  std::string sentence(capnp::Text::Reader text);

  template <class E, class WireE>
  E enumeration(WireE wire, E last, const char* what) {
    const auto raw = static_cast<std::uint16_t>(wire);
    if (raw <= static_cast<std::uint16_t>(last)) return static_cast<E>(raw);
    fail(std::string(what) + " has an unknown value");
    return E{};
  }

  /// Vectors grow only as far as a share of the input's size allows, whatever the list claims.
  template <class T, class List, class Get>
  std::vector<T> list(const List& wire, Get get) {
    std::vector<T> values;
    if (!take(wire.size(), sizeof(T))) return values;
    values.reserve(wire.size());
    for (auto element : wire) {
      if (!ok()) break;
      values.push_back(get(element));
    }
    return values;
  }
  std::vector<std::int32_t> ints(capnp::List<std::int32_t>::Reader wire, std::int32_t low,
                                 std::int32_t high, const char* what);

 private:
  bool take(std::size_t count, std::size_t element_bytes);

  std::optional<std::string> fault_;
  const Payload& payload_;
  std::size_t budget_bytes_;
};

inline constexpr TokenId kTokenMax = static_cast<TokenId>(limits::kDimensionMax - 1);
inline constexpr std::int32_t kInt32Max = 0x7fffffff;
inline constexpr auto kTopLogprobsMax = static_cast<std::int32_t>(limits::kTopLogprobsMax);
inline constexpr std::uint32_t kCanaryTokensMax = 4096;

template <class T, class WireList, class Put>
void put_list(const std::vector<T>& values, WireList wire, Put put) {
  for (std::size_t i = 0; i < values.size(); ++i) put(wire[static_cast<unsigned>(i)], values[i]);
}
void put_ints(capnp::List<std::int32_t>::Builder wire, const std::vector<std::int32_t>& values);
void put_texts(Out& out, capnp::List<capnp::Text>::Builder wire,
               const std::vector<std::string>& texts);
std::vector<std::string> get_texts(In& in, capnp::List<capnp::Text>::Reader wire);
void put_words(capnp::List<std::uint64_t>::Builder wire, const std::vector<std::uint64_t>& values);
std::vector<std::uint64_t> get_words(In& in, capnp::List<std::uint64_t>::Reader wire);
/// Numbers that are finite.
void put_floats(capnp::List<float>::Builder wire, const std::vector<float>& values);
std::vector<float> get_floats(In& in, capnp::List<float>::Reader wire);
Pooling get_pooling(In& in, wire::Pooling wire);
/// Numbers of a hidden state, where some are asked for.
std::uint32_t get_hidden_width(In& in, std::uint32_t width, Pooling pooling);
/// The first line of what Cap'n Proto says, without its source positions.
std::string describe(const kj::Exception& exception);
/// Its segment table and segments. kResourceExhausted: longer than `bytes_max`; the sentence names
/// `what` it is and what it cannot be: `done`.
Result<std::vector<std::byte>> serialize(capnp::MessageBuilder& builder, std::size_t bytes_max,
                                         const char* what, const char* done);
capnp::Data::Reader data_of(std::span<const std::byte> bytes);
CommunicatorId get_communicator_id(In& in, capnp::Data::Reader wire);

// Shared parts (codec_parts.cpp).
void put(Out& out, wire::Address::Builder wire, const Address& address);
Address get(In& in, wire::Address::Reader wire);
void put(Out& out, wire::DeviceRef::Builder wire, const DeviceRef& device);
DeviceRef get(In& in, wire::DeviceRef::Reader wire);
Numerics get_numerics(In& in, wire::Numerics wire);
void put(Out& out, wire::Error::Builder wire, const Error& error);
Error get(In& in, wire::Error::Reader wire);
/// Of a group that is a union of `none` and `value`.
template <class WireOptional>
std::optional<Error> get_optional_error(In& in, WireOptional wire) {
  if (wire.isValue()) return get(in, wire.getValue());
  in.require(wire.isNone(), "an error has an unknown form");
  return std::nullopt;
}
void put(Out& out, wire::SamplingParams::Builder wire, const SamplingParams& sampling);
SamplingParams get(In& in, wire::SamplingParams::Reader wire);
void put(Out& out, wire::TokenOutput::Builder wire, const TokenOutput& token);
TokenOutput get(In& in, wire::TokenOutput::Reader wire);
void put_tokens(Out& out, capnp::List<wire::TokenOutput>::Builder wire,
                const std::vector<TokenOutput>& tokens);
std::vector<TokenOutput> get_tokens(In& in, capnp::List<wire::TokenOutput>::Reader wire);
void put(Out& out, wire::ProtocolRange::Builder wire, const ProtocolRange& range);
ProtocolRange get(In& in, wire::ProtocolRange::Reader wire);
void put(Out& out, wire::FabricPort::Builder wire, const FabricPort& port);
FabricPort get(In& in, wire::FabricPort::Reader wire);
void put(Out& out, wire::ProofReport::Builder wire, const ProofReport& report);
ProofReport get(In& in, wire::ProofReport::Reader wire);
void put(Out& out, wire::EngineOptions::Builder wire, const EngineOptions& engine);
EngineOptions get_engine(In& in, wire::EngineOptions::Reader wire);
void put(Out& out, wire::Placement::Builder wire, const Placement& placement);
/// Every stage has so many ranks.
Placement get_placement(In& in, wire::Placement::Reader wire, std::int32_t ranks);

// Every message, with its name in the schema's union.
#define TROUPE_CODEC_KINDS(KIND)              \
  KIND(Greeting, GREETING)                    \
  KIND(Join, JOIN)                            \
  KIND(Refused, REFUSED)                      \
  KIND(Welcome, WELCOME)                      \
  KIND(Renew, RENEW)                          \
  KIND(Renewed, RENEWED)                      \
  KIND(Leave, LEAVE)                          \
  KIND(Load, LOAD)                            \
  KIND(LoadProgress, LOAD_PROGRESS)           \
  KIND(Loaded, LOADED)                        \
  KIND(LoadFailed, LOAD_FAILED)               \
  KIND(Activate, ACTIVATE)                    \
  KIND(Retire, RETIRE)                        \
  KIND(Stop, STOP)                            \
  KIND(PeerUnreachable, PEER_UNREACHABLE)     \
  KIND(Submit, SUBMIT)                        \
  KIND(Cancel, CANCEL)                        \
  KIND(SequenceEvents, SEQUENCE_EVENTS)       \
  KIND(StepPlan, STEP_PLAN)                   \
  KIND(Hidden, HIDDEN)                        \
  KIND(StepResult, STEP_RESULT)               \
  KIND(StepFailed, STEP_FAILED)               \
  KIND(StepAbort, STEP_ABORT)                 \
  KIND(Dispatch, DISPATCH)                    \
  KIND(ExpertOutput, EXPERT_OUTPUT)           \
  KIND(NotHere, NOT_HERE)                     \
  KIND(ClientHello, CLIENT_HELLO)             \
  KIND(ClientWelcome, CLIENT_WELCOME)         \
  KIND(StatusQuery, STATUS_QUERY)             \
  KIND(StatusReply, STATUS_REPLY)             \
  KIND(StopQuery, STOP_QUERY)                 \
  KIND(StopReply, STOP_REPLY)                 \
  KIND(ClientGenerate, CLIENT_GENERATE)       \
  KIND(ClientCancel, CLIENT_CANCEL)           \
  KIND(ClientGeneration, CLIENT_GENERATION)   \
  KIND(Subscribe, SUBSCRIBE)                  \
  KIND(ClusterNews, CLUSTER_NEWS)             \
  KIND(Undeliverable, UNDELIVERABLE)          \
  KIND(Activated, ACTIVATED)                  \
  KIND(MemberLost, MEMBER_LOST)               \
  KIND(Connect, CONNECT)                      \
  KIND(ExpertCounts, EXPERT_COUNTS)           \
  KIND(Avoid, AVOID)                          \
  KIND(DrainQuery, DRAIN_QUERY)               \
  KIND(RebalanceQuery, REBALANCE_QUERY)       \
  KIND(OperationProgress, OPERATION_PROGRESS) \
  KIND(TensorProofs, TENSOR_PROOFS)           \
  KIND(Prove, PROVE)                          \
  KIND(ProofFailed, PROOF_FAILED)             \
  KIND(RunCanary, RUN_CANARY)                 \
  KIND(CanaryResult, CANARY_RESULT)           \
  KIND(StepProgress, STEP_PROGRESS)           \
  KIND(ExpertProgress, EXPERT_PROGRESS)       \
  KIND(CrashReport, CRASH_REPORT)             \
  KIND(Discard, DISCARD)                      \
  KIND(ForgetPrefixes, FORGET_PREFIXES)       \
  KIND(RankPart, RANK_PART)                   \
  KIND(RankReady, RANK_READY)                 \
  KIND(RankGo, RANK_GO)                       \
  KIND(RankGroup, RANK_GROUP)                 \
  KIND(Parcel, PARCEL)                        \
  KIND(ParcelGroup, PARCEL_GROUP)             \
  KIND(Follow, FOLLOW)                        \
  KIND(Succession, SUCCESSION)                \
  KIND(KnownLines, KNOWN_LINES)               \
  KIND(JournalCopy, JOURNAL_COPY)             \
  KIND(Followed, FOLLOWED)                    \
  KIND(Successor, SUCCESSOR)                  \
  KIND(SuccessorKnown, SUCCESSOR_KNOWN)       \
  KIND(Standing, STANDING)                    \
  KIND(Pledge, PLEDGE)                        \
  KIND(HeadReturns, HEAD_RETURNS)             \
  KIND(NetworkQuery, NETWORK_QUERY)           \
  KIND(NetworkPlan, NETWORK_PLAN)             \
  KIND(PairReport, PAIR_REPORT)               \
  KIND(MeasureLink, MEASURE_LINK)             \
  KIND(EndMeasure, END_MEASURE)               \
  KIND(LinkMeasured, LINK_MEASURED)           \
  KIND(LinkProbe, LINK_PROBE)                 \
  KIND(LinkEcho, LINK_ECHO)

// One pair each; they live in the file of their section.
#define TROUPE_CODEC_PAIR(Kind, TAG)                                 \
  void put(Out& out, wire::Kind::Builder wire, const Kind& message); \
  Kind get(In& in, wire::Kind::Reader wire);
TROUPE_CODEC_KINDS(TROUPE_CODEC_PAIR)
#undef TROUPE_CODEC_PAIR

}  // namespace troupe::transport
