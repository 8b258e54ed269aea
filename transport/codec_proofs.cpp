#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

void put_digests(capnp::List<std::uint64_t>::Builder wire, std::span<const Digest> digests) {
  for (unsigned i = 0; i < digests.size(); ++i) {
    wire.set(2 * i, digests[i].low);
    wire.set(2 * i + 1, digests[i].high);
  }
}

std::vector<Digest> get_digests(In& in, capnp::List<std::uint64_t>::Reader wire) {
  const auto words = get_words(in, wire);
  in.require(words.size() % 2 == 0 && words.size() <= 2 * limits::kSumSlices,
             "a tensor has a wrong number of digests");
  std::vector<Digest> digests;
  for (std::size_t i = 0; in.ok() && i < words.size(); i += 2)
    digests.push_back({words[i], words[i + 1]});
  return digests;
}

void put(Out& out, wire::TensorProof::Builder wire, const TensorProof& proof) {
  wire.setTensor(out.name(proof.tensor, "a tensor's name"));
  wire.setFile(out.name(proof.file, "a file's name"));
  put_digests(wire.initStored(2 * proof.stored.size()), proof.stored);
  if (proof.packed) put_digests(wire.initPacked(2), {&*proof.packed, 1});
}

TensorProof get_proof(In& in, wire::TensorProof::Reader wire) {
  TensorProof proof{in.name(wire.getTensor(), "a tensor's name"),
                    in.name(wire.getFile(), "a file's name"),
                    get_digests(in, wire.getStored()),
                    {}};
  in.require(!proof.stored.empty(), "a tensor has no digest");
  const auto packed = get_digests(in, wire.getPacked());
  in.require(packed.size() <= 1, "a packed tensor has more than one digest");
  if (!packed.empty()) proof.packed = packed.front();
  return proof;
}

}  // namespace

void put(Out&, wire::ProofReport::Builder wire, const ProofReport& report) {
  wire.setParts(report.parts);
  wire.setProven(report.proven);
  wire.setOldestS(report.oldest_s);
  wire.setRoundS(report.round_s);
}

ProofReport get(In& in, wire::ProofReport::Reader wire) {
  in.require(wire.getProven() <= wire.getParts(), "more parts are proven than there are");
  return {wire.getParts(), wire.getProven(), wire.getOldestS(), wire.getRoundS()};
}

void put_names(Out& out, capnp::List<capnp::Text>::Builder wire,
               const std::vector<std::string>& names) {
  for (unsigned i = 0; i < names.size(); ++i) wire.set(i, out.name(names[i], "a tensor's name"));
}

std::vector<std::string> get_names(In& in, capnp::List<capnp::Text>::Reader wire) {
  return in.list<std::string>(wire, [&](auto text) { return in.name(text, "a tensor's name"); });
}

void put(Out& out, wire::TensorProofs::Builder wire, const TensorProofs& message) {
  wire.setFresh(message.fresh);
  put_list(message.tensors, wire.initTensors(message.tensors.size()),
           [&](auto w, const TensorProof& proof) { put(out, w, proof); });
  if (message.error) put(out, wire.getError().initValue(), *message.error);
  put_names(out, wire.initUnread(message.unread.size()), message.unread);
  wire.setReopened(message.reopened);
  if (!message.changed.empty()) wire.setChanged(out.sentence(message.changed));
}

TensorProofs get(In& in, wire::TensorProofs::Reader wire) {
  TensorProofs message;
  message.fresh = wire.getFresh();
  message.tensors =
      in.list<TensorProof>(wire.getTensors(), [&](auto w) { return get_proof(in, w); });
  message.error = get_optional_error(in, wire.getError());
  message.unread = get_names(in, wire.getUnread());
  message.reopened = wire.getReopened();
  if (wire.hasChanged()) message.changed = in.sentence(wire.getChanged());
  return message;
}


void put(Out& out, wire::Prove::Builder wire, const Prove& message) {
  put_names(out, wire.initTensors(message.tensors.size()), message.tensors);
}
Prove get(In& in, wire::Prove::Reader wire) { return {get_names(in, wire.getTensors())}; }

void put(Out& out, wire::Discard::Builder wire, const Discard& message) {
  put_names(out, wire.initTensors(message.tensors.size()), message.tensors);
}
Discard get(In& in, wire::Discard::Reader wire) { return {get_names(in, wire.getTensors())}; }

void put(Out& out, wire::ProofFailed::Builder wire, const ProofFailed& message) {
  wire.setTensor(out.name(message.tensor, "a tensor's name"));
  wire.setReason(out.sentence(message.reason));
  wire.setLastGoodS(message.last_good_s);
}

ProofFailed get(In& in, wire::ProofFailed::Reader wire) {
  return {in.name(wire.getTensor(), "a tensor's name"), in.sentence(wire.getReason()),
          wire.getLastGoodS()};
}

void put(Out&, wire::RunCanary::Builder wire, const RunCanary& message) {
  wire.setReplica(message.replica);
  wire.setRun(message.run);
  put_ints(wire.initPrompt(message.prompt.size()), message.prompt);
  wire.setGenerate(message.generate);
}

RunCanary get(In& in, wire::RunCanary::Reader wire) {
  RunCanary message{wire.getReplica(), wire.getRun(),
                    in.ints(wire.getPrompt(), 0, kTokenMax, "a token"),
                    in.in_range(wire.getGenerate(), 1, kCanaryTokensMax, "a count of tokens")};
  in.require(!message.prompt.empty() && message.prompt.size() <= kCanaryTokensMax,
             "a canary has a wrong number of tokens");
  return message;
}

void put(Out& out, wire::CanaryResult::Builder wire, const CanaryResult& message) {
  wire.setReplica(message.replica);
  wire.setRun(message.run);
  put_ints(wire.initTokens(message.tokens.size()), message.tokens);
  put_words(wire.initDigests(message.digests.size()), message.digests);
  wire.setNoRoom(message.no_room);
  if (message.error) put(out, wire.getError().initValue(), *message.error);
}

CanaryResult get(In& in, wire::CanaryResult::Reader wire) {
  return {wire.getReplica(), wire.getRun(), in.ints(wire.getTokens(), 0, kTokenMax, "a token"),
          get_words(in, wire.getDigests()), get_optional_error(in, wire.getError()),
          wire.getNoRoom()};
}

void put(Out&, wire::ForgetPrefixes::Builder wire, const ForgetPrefixes& message) {
  wire.setReplica(message.replica);
}
ForgetPrefixes get(In&, wire::ForgetPrefixes::Reader wire) { return {wire.getReplica()}; }

}  // namespace troupe::transport
