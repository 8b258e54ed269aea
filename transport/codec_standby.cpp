#include "schema/standby.capnp.h"
#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

void put_life(wire::WorkerLife::Builder wire, const WorkerLife& life) {
  wire.setId(life.id.value);
  wire.setIncarnation(life.incarnation.value);
}

WorkerLife get_life(wire::WorkerLife::Reader wire) {
  return {NodeId{wire.getId()}, Incarnation{wire.getIncarnation()}};
}

}  // namespace

void put(Out& out, wire::Follow::Builder wire, const Follow& message) {
  wire.setOldestProtocol(message.protocol.oldest);
  wire.setNewestProtocol(message.protocol.newest);
  wire.setVersion(out.name(message.version, "the version"));
  wire.setCheckpointHash(out.name(message.checkpoint_hash, "the checkpoint's hash"));
  put(out, wire.initEngine(), message.engine);
  wire.setAddress(out.name(message.address, "the standby's address"));
  wire.setStandby(message.standby);
  wire.setInstead(message.instead);
}

Follow get(In& in, wire::Follow::Reader wire) {
  Follow message;
  message.protocol = {wire.getOldestProtocol(), wire.getNewestProtocol()};
  if (message.protocol.oldest == 0) message.protocol.oldest = message.protocol.newest;
  message.version = in.name(wire.getVersion(), "the version");
  message.checkpoint_hash = in.name(wire.getCheckpointHash(), "the checkpoint's hash");
  message.engine = get_engine(in, wire.getEngine());
  message.address = in.name(wire.getAddress(), "the standby's address");
  message.standby = wire.getStandby();
  in.require(message.standby != 0, "a standby has no number");
  message.instead = wire.getInstead();
  return message;
}

void put(Out& out, wire::Succession::Builder wire, const Succession& message) {
  wire.setNumber(message.number);
  wire.setClusterId(out.name(message.cluster_id, "the cluster's id"));
  wire.setNextNode(message.next_node);
  wire.setComplete(message.complete);
  put_list(message.members, wire.initMembers(message.members.size()), put_life);
}

Succession get(In& in, wire::Succession::Reader wire) {
  Succession message;
  message.number = wire.getNumber();
  message.cluster_id = in.name(wire.getClusterId(), "the cluster's id");
  message.next_node = wire.getNextNode();
  in.require(message.next_node != 0, "the next node has no number");
  message.complete = wire.getComplete();
  message.members = in.list<WorkerLife>(wire.getMembers(), get_life);
  return message;
}

void put(Out& out, wire::KnownLines::Builder wire, const KnownLines& message) {
  wire.setBegins(message.begins);
  wire.setLines(out.text(message.lines, "what is known of the checkpoint"));
}

KnownLines get(In& in, wire::KnownLines::Reader wire) {
  return {wire.getBegins(), in.text(wire.getLines(), "what is known of the checkpoint")};
}

/// A record that cannot be encoded is not on the head's disk either, and is left out.
void put(Out&, wire::JournalCopy::Builder wire, const JournalCopy& message) {
  wire.setFile(message.file);
  wire.setMark(message.mark);
  wire.setBegins(message.begins);
  wire.setTells(message.tells);
  wire.setCompletes(message.completes);
  std::vector<std::vector<std::byte>> encoded;
  for (const JournalRecord& record : message.records)
    if (auto bytes = encode(record); bytes.ok()) encoded.push_back(std::move(*bytes));
  auto records = wire.initRecords(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i)
    records.set(i, {reinterpret_cast<const capnp::byte*>(encoded[i].data()), encoded[i].size()});
}

JournalCopy get(In& in, wire::JournalCopy::Reader wire) {
  JournalCopy message;
  message.file = wire.getFile();
  message.mark = wire.getMark();
  message.begins = wire.getBegins();
  message.tells = wire.getTells();
  message.completes = wire.getCompletes();
  message.records =
      in.list<JournalRecord>(wire.getRecords(), [&](capnp::Data::Reader data) -> JournalRecord {
        auto record = decode_record(std::as_bytes(std::span(data.begin(), data.size())));
        if (record.ok()) return std::move(*record);
        in.fail(record.error().message);
        return JournalForgotten{};
      });
  return message;
}

void put(Out&, wire::Followed::Builder wire, const Followed& message) {
  wire.setBeat(message.beat);
  wire.setSuccession(message.succession);
  wire.setMark(message.mark);
}

Followed get(In&, wire::Followed::Reader wire) {
  return {wire.getBeat(), wire.getSuccession(), wire.getMark()};
}

void put(Out& out, wire::Successor::Builder wire, const Successor& message) {
  wire.setNumber(message.number);
  wire.setStandby(message.standby);
  wire.setAddress(out.name(message.address, "the standby's address"));
}

Successor get(In& in, wire::Successor::Reader wire) {
  return {wire.getNumber(), wire.getStandby(), in.name(wire.getAddress(), "the standby's address")};
}

void put(Out&, wire::SuccessorKnown::Builder wire, const SuccessorKnown& message) {
  wire.setNumber(message.number);
}

SuccessorKnown get(In&, wire::SuccessorKnown::Reader wire) { return {wire.getNumber()}; }

void put(Out& out, wire::Standing::Builder wire, const Standing& message) {
  wire.setClusterId(out.name(message.cluster_id, "the cluster's id"));
  wire.setStandby(message.standby);
  wire.setTerm(message.term.value);
  wire.setReason(out.sentence(message.reason));
}

Standing get(In& in, wire::Standing::Reader wire) {
  return {in.name(wire.getClusterId(), "the cluster's id"), wire.getStandby(),
          Incarnation{wire.getTerm()}, in.sentence(wire.getReason())};
}

void put(Out&, wire::Pledge::Builder wire, const Pledge& message) {
  wire.setTerm(message.term.value);
  put_life(wire.initLife(), message.life);
  wire.setStandby(message.standby);
}

Pledge get(In&, wire::Pledge::Reader wire) {
  return {Incarnation{wire.getTerm()}, get_life(wire.getLife()), wire.getStandby()};
}

void put(Out& out, wire::HeadReturns::Builder wire, const HeadReturns& message) {
  wire.setClusterId(out.name(message.cluster_id, "the cluster's id"));
}

HeadReturns get(In& in, wire::HeadReturns::Reader wire) {
  return {in.name(wire.getClusterId(), "the cluster's id")};
}

}  // namespace troupe::transport
