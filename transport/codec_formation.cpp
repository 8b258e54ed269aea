#include "runtime/standby_limits.h"
#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

DeviceInventory get_device(In& in, wire::DeviceInventory::Reader wire) {
  return {in.name(wire.getKind(), "a device's kind"), wire.getMemoryTotalBytes(),
          in.in_range(wire.getThreads(), 1, static_cast<std::uint32_t>(limits::kThreadsMax),
                      "a device's thread count"),
          in.name(wire.getName(), "a device's name"),
          in.name(wire.getArchitecture(), "a device's architecture")};
}

void put_health(Out& out, wire::DeviceHealth::Builder wire, const DeviceHealth& health) {
  if (health.utilization) wire.setUtilization(*health.utilization);
  if (health.temperature_c) wire.setTemperatureC(*health.temperature_c);
  if (health.ecc_errors) wire.setEccErrors(static_cast<std::int64_t>(*health.ecc_errors));
  wire.setThrottled(out.sentence(health.throttled));
}

DeviceHealth get_health(In& in, wire::DeviceHealth::Reader wire) {
  DeviceHealth health;
  if (const float share = wire.getUtilization(); !(share < 0))
    health.utilization = in.in_range(share, 0, 1, "a device's utilization");
  if (const std::int64_t degrees = wire.getTemperatureC(); degrees >= 0)
    health.temperature_c =
        static_cast<std::uint32_t>(in.in_range(degrees, 0, kInt32Max, "a device's temperature"));
  if (const std::int64_t errors = wire.getEccErrors(); errors >= 0)
    health.ecc_errors = static_cast<std::uint64_t>(errors);
  health.throttled = in.sentence(wire.getThrottled());
  return health;
}

ReplicaReport get_replica(In& in, wire::ReplicaReport::Reader wire) {
  ReplicaReport report{wire.getReplica(),
                       wire.getRunning(),
                       wire.getWaiting(),
                       in.in_range(wire.getKvBlocksTotal(), 0, kInt32Max, "a count of KV blocks"),
                       in.in_range(wire.getKvBlocksUsed(), 0, kInt32Max, "a count of KV blocks"),
                       wire.getPreemptions(),
                       in.in_range(wire.getKvBlocksCached(), 0, kInt32Max, "a count of KV blocks")};
  in.require(
      std::int64_t{report.kv_blocks_used} + report.kv_blocks_cached <= report.kv_blocks_total,
      "more KV blocks are used than exist");
  return report;
}

LayerRange get_range(In& in, wire::LayerRange::Reader wire) {
  LayerRange range;
  range.first = in.in_range(wire.getFirst(), 0, limits::kLayersMax - 1, "a layer");
  range.last = in.in_range(wire.getLast(), range.first, limits::kLayersMax - 1, "a layer");
  range.rank.size = in.in_range(wire.getTpSize(), 1, limits::kTensorRanksMax, "a number of ranks");
  range.rank.rank = in.in_range(wire.getTpRank(), 0, range.rank.size - 1, "a rank");
  return range;
}

HeldExperts get_held(In& in, wire::HeldExperts::Reader wire) {
  return {in.in_range(wire.getLayer(), 0, limits::kLayersMax - 1, "a layer"),
          in.ints(wire.getExperts(), 0, limits::kExpertsMax - 1, "an expert")};
}

void put(Out& out, wire::HeldRole::Builder wire, const HeldRole& role) {
  wire.setIncarnation(role.incarnation.value);
  transport::put(out, wire.initPlacement(), role.placement);
  transport::put(out, wire.initEngine(), role.engine);
  auto lost = wire.initLost(role.lost.size());
  for (std::size_t i = 0; i < role.lost.size(); ++i) lost.set(i, role.lost[i].value);
}

HeldRole get_held_role(In& in, wire::HeldRole::Reader wire) {
  HeldRole role;
  role.incarnation = Incarnation{wire.getIncarnation()};
  role.engine = get_engine(in, wire.getEngine());
  role.placement = get_placement(in, wire.getPlacement(), role.engine.tensor_parallel_size);
  const auto lost = wire.getLost();
  in.require(lost.size() <= limits::kNodesMax, "a cluster has too many nodes");
  role.lost = in.list<NodeId>(lost, [](std::uint32_t node) { return NodeId{node}; });
  return role;
}

}  // namespace

void put(Out& out, wire::Greeting::Builder wire, const Greeting& message) {
  put(out, wire.initProtocol(), message.protocol);
  wire.setClusterId(out.name(message.cluster_id, "the cluster's id"));
  wire.setVersion(out.name(message.version, "the version"));
  wire.setModelPath(out.name(message.model_path, "the model's path"));
  wire.setCheckpointHash(out.name(message.checkpoint_hash, "the checkpoint's hash"));
  if (message.numerics) wire.getNumerics().setValue(static_cast<wire::Numerics>(*message.numerics));
  wire.setModelPlace(message.model_place);
}

Greeting get(In& in, wire::Greeting::Reader wire) {
  Greeting message;
  message.protocol = get(in, wire.getProtocol());
  message.cluster_id = in.name(wire.getClusterId(), "the cluster's id");
  message.version = in.name(wire.getVersion(), "the version");
  message.model_path = in.name(wire.getModelPath(), "the model's path");
  message.checkpoint_hash = in.name(wire.getCheckpointHash(), "the checkpoint's hash");
  const auto numerics = wire.getNumerics();
  if (numerics.isValue())
    message.numerics = get_numerics(in, numerics.getValue());
  else
    in.require(numerics.isNone(), "the numerics have an unknown form");
  message.model_place = wire.getModelPlace();
  return message;
}

void put(Out& out, wire::Join::Builder wire, const Join& message) {
  put(out, wire.initProtocol(), message.protocol);
  wire.setVersion(out.name(message.version, "the version"));
  wire.setHost(out.name(message.host, "the host"));
  wire.setPid(message.pid);
  wire.setRole(out.name(message.role, "the role"));
  auto numerics = wire.initNumerics(message.numerics.size());
  for (std::size_t i = 0; i < message.numerics.size(); ++i)
    numerics.set(i, static_cast<wire::Numerics>(message.numerics[i]));
  wire.setCheckpointHash(out.name(message.checkpoint_hash, "the checkpoint's hash"));
  put_list(message.devices, wire.initDevices(message.devices.size()),
           [&](auto w, const DeviceInventory& device) {
             w.setKind(out.name(device.kind, "a device's kind"));
             w.setMemoryTotalBytes(device.memory_total);
             w.setThreads(device.threads);
             w.setName(out.name(device.name, "a device's name"));
             w.setArchitecture(out.name(device.architecture, "a device's architecture"));
           });
  wire.setHeldId(message.held_id.value);
  wire.setHeldCluster(out.name(message.held_cluster, "the held cluster's id"));
  wire.setHeldWeightBytes(message.held_weight_bytes);
  wire.setFabricAddress(out.name(message.fabric_address, "the fabric's address"));
  wire.setFabricDescription(out.name(message.fabric_description, "the fabric's description"));
  put_list(message.held_shards, wire.initHeldShards(message.held_shards.size()),
           [](auto w, const LayerRange& range) {
             w.setFirst(range.first);
             w.setLast(range.last);
             w.setTpRank(range.rank.rank);
             w.setTpSize(range.rank.size);
           });
  put_list(message.held_experts, wire.initHeldExperts(message.held_experts.size()),
           [](auto w, const HeldExperts& layer) {
             w.setLayer(layer.layer);
             put_ints(w.initExperts(layer.experts.size()), layer.experts);
           });
  wire.setTierMemoryBytes(message.tier_memory);
  wire.setNccl(message.nccl);
  if (message.held_role) put(out, wire.initHeldRole(), *message.held_role);
  put(out, wire.initFabricPort(), message.fabric_port);
}

Join get(In& in, wire::Join::Reader wire) {
  Join message;
  message.protocol = get(in, wire.getProtocol());
  message.version = in.name(wire.getVersion(), "the version");
  message.host = in.name(wire.getHost(), "the host");
  message.pid = in.in_range(wire.getPid(), 0, kInt32Max, "the process id");
  message.role = in.name(wire.getRole(), "the role");
  // A newer program may know families that this one does not: they are no choice here.
  for (const wire::Numerics numerics : wire.getNumerics())
    if (static_cast<std::uint16_t>(numerics) <= 255 &&
        is_numerics(static_cast<std::uint8_t>(numerics)) &&
        message.numerics.size() < limits::kNumericsMax)
      message.numerics.push_back(static_cast<Numerics>(numerics));
  message.checkpoint_hash = in.name(wire.getCheckpointHash(), "the checkpoint's hash");
  const auto devices = wire.getDevices();
  in.require(devices.size() <= limits::kDevicesPerNodeMax, "a node has too many devices");
  message.devices = in.list<DeviceInventory>(devices, [&](auto w) { return get_device(in, w); });
  message.held_id = NodeId{wire.getHeldId()};
  message.held_cluster = in.name(wire.getHeldCluster(), "the held cluster's id");
  message.held_weight_bytes = wire.getHeldWeightBytes();
  message.fabric_address = in.name(wire.getFabricAddress(), "the fabric's address");
  message.fabric_description = in.name(wire.getFabricDescription(), "the fabric's description");
  message.held_shards =
      in.list<LayerRange>(wire.getHeldShards(), [&](auto w) { return get_range(in, w); });
  message.held_experts =
      in.list<HeldExperts>(wire.getHeldExperts(), [&](auto w) { return get_held(in, w); });
  message.tier_memory = wire.getTierMemoryBytes();
  message.nccl = wire.getNccl();
  if (wire.hasHeldRole()) message.held_role = get_held_role(in, wire.getHeldRole());
  message.fabric_port = get(in, wire.getFabricPort());
  return message;
}

void put(Out& out, wire::Refused::Builder wire, const Refused& message) {
  wire.setCode(static_cast<wire::ErrorCode>(message.code));
  wire.setReason(out.sentence(message.reason));
}

Refused get(In& in, wire::Refused::Reader wire) {
  return {in.enumeration(wire.getCode(), ErrorCode::kInternal, "an error's code"),
          in.sentence(wire.getReason())};
}

void put(Out&, wire::Welcome::Builder wire, const Welcome& message) {
  wire.setId(message.id.value);
  wire.setIncarnation(message.incarnation.value);
  wire.setLeaseMs(message.lease_ms);
  wire.setKeepForS(message.keep_for_s);
}

Welcome get(In& in, wire::Welcome::Reader wire) {
  in.require(wire.getId() != kHeadNode.value, "a worker was given the head's id");
  in.require(wire.getLeaseMs() > 0, "a lease has no length");
  in.require(wire.getKeepForS() <= limits::kKeepForMax.count(), "a worker is to keep for too long");
  return {NodeId{wire.getId()}, Incarnation{wire.getIncarnation()}, wire.getLeaseMs(),
          wire.getKeepForS()};
}

void put(Out& out, wire::Renew::Builder wire, const Renew& message) {
  wire.setSequence(message.sequence);
  put_list(message.devices, wire.initDevices(message.devices.size()),
           [&](auto w, const DeviceReport& report) {
             w.setMemoryUsedBytes(report.memory_used);
             w.setUtilization(report.utilization);
             w.setProbeUs(report.probe_us);
             w.setFailed(out.sentence(report.failed));
             w.setExpertsRead(report.experts_read);
             put_health(out, w.initHealth(), report.health);
           });
  put_list(message.replicas, wire.initReplicas(message.replicas.size()),
           [](auto w, const ReplicaReport& report) {
             w.setReplica(report.replica);
             w.setRunning(report.running);
             w.setWaiting(report.waiting);
             w.setKvBlocksTotal(report.kv_blocks_total);
             w.setKvBlocksUsed(report.kv_blocks_used);
             w.setKvBlocksCached(report.kv_blocks_cached);
             w.setPreemptions(report.preemptions);
           });
  put(out, wire.initProofs(), message.proofs);
  wire.setHeard(message.heard);
}

Renew get(In& in, wire::Renew::Reader wire) {
  Renew message;
  message.sequence = wire.getSequence();
  const auto devices = wire.getDevices();
  in.require(devices.size() <= limits::kDevicesPerNodeMax, "a node has too many devices");
  message.devices = in.list<DeviceReport>(devices, [&](auto w) {
    return DeviceReport{
        w.getMemoryUsedBytes(), in.in_range(w.getUtilization(), 0, 1, "a device's utilization"),
        w.getProbeUs(),         in.sentence(w.getFailed()),
        w.getExpertsRead(),     get_health(in, w.getHealth())};
  });
  message.replicas =
      in.list<ReplicaReport>(wire.getReplicas(), [&](auto w) { return get_replica(in, w); });
  message.proofs = get(in, wire.getProofs());
  message.heard = wire.getHeard();
  return message;
}

void put(Out&, wire::Renewed::Builder wire, const Renewed& message) {
  wire.setSequence(message.sequence);
}
Renewed get(In&, wire::Renewed::Reader wire) { return {wire.getSequence()}; }

void put(Out& out, wire::Leave::Builder wire, const Leave& message) {
  wire.setReason(out.sentence(message.reason));
}
Leave get(In& in, wire::Leave::Reader wire) { return {in.sentence(wire.getReason())}; }

void put(Out& out, wire::Stop::Builder wire, const Stop& message) {
  wire.setReason(out.sentence(message.reason));
}
Stop get(In& in, wire::Stop::Reader wire) { return {in.sentence(wire.getReason())}; }

void put(Out& out, wire::PeerUnreachable::Builder wire, const PeerUnreachable& message) {
  wire.setPeer(message.peer.value);
  wire.setIncarnation(message.incarnation.value);
  wire.setReason(out.sentence(message.reason));
  wire.setFault(static_cast<wire::LinkFault>(message.fault));
}

PeerUnreachable get(In& in, wire::PeerUnreachable::Reader wire) {
  return {NodeId{wire.getPeer()}, Incarnation{wire.getIncarnation()}, in.sentence(wire.getReason()),
          in.enumeration(wire.getFault(), LinkFault::kOwnEnd, "a link's fault")};
}

void put(Out& out, wire::MemberLost::Builder wire, const MemberLost& message) {
  wire.setNode(message.node.value);
  wire.setIncarnation(message.incarnation.value);
  wire.setReason(out.sentence(message.reason));
}

MemberLost get(In& in, wire::MemberLost::Reader wire) {
  return {NodeId{wire.getNode()}, Incarnation{wire.getIncarnation()},
          in.sentence(wire.getReason())};
}

}  // namespace troupe::transport
