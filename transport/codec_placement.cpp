#include <algorithm>

#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

// What shard_index() of runtime/placement.h has bits for.
constexpr std::uint32_t kReplicasMax = 1u << 16, kStagesMax = 1u << 12;
constexpr std::int32_t kCountMax = 1 << 24;

static_assert(std::tuple_size_v<FabricToken> == wire::FABRIC_TOKEN_BYTES);

void put_experts(Out& out, capnp::List<wire::LayerExperts>::Builder wire,
                 const std::vector<LayerExperts>& layers) {
  put_list(layers, wire, [&](auto w, const LayerExperts& layer) {
    w.setLayer(layer.layer);
    put_list(layer.slots, w.initSlots(layer.slots.size()), [&](auto ws, const ExpertSlot& slot) {
      ws.setExpert(slot.expert);
      transport::put(out, ws.initDevice(), slot.device);
    });
  });
}

ShardPlacement get_shard(In& in, wire::ShardPlacement::Reader wire) {
  ShardPlacement shard;
  shard.replica = in.in_range(wire.getReplica(), 0, kReplicasMax - 1, "a shard's replica");
  shard.stage = in.in_range(wire.getStage(), 0, kStagesMax - 1, "a shard's stage");
  shard.tp_rank = in.in_range(wire.getTpRank(), 0, limits::kTensorRanksMax - 1, "a shard's rank");
  shard.first_layer = in.in_range(wire.getFirstLayer(), 0, limits::kLayersMax - 1, "a layer");
  shard.last_layer =
      in.in_range(wire.getLastLayer(), shard.first_layer, limits::kLayersMax - 1, "a layer");
  shard.device = get(in, wire.getDevice());
  return shard;
}

LayerExperts get_layer(In& in, wire::LayerExperts::Reader wire) {
  LayerExperts layer;
  layer.layer = in.in_range(wire.getLayer(), 0, limits::kLayersMax - 1, "a layer");
  layer.slots = in.list<ExpertSlot>(wire.getSlots(), [&](auto w) {
    return ExpertSlot{in.in_range(w.getExpert(), 0, limits::kExpertsMax - 1, "an expert"),
                      get(in, w.getDevice())};
  });
  return layer;
}

std::vector<LayerExperts> get_experts(In& in, capnp::List<wire::LayerExperts>::Reader wire) {
  auto layers = in.list<LayerExperts>(wire, [&](auto w) { return get_layer(in, w); });
  const auto by_layer = [](const LayerExperts& a, const LayerExperts& b) {
    return a.layer >= b.layer;
  };
  in.require(std::adjacent_find(layers.begin(), layers.end(), by_layer) == layers.end(),
             "the experts are not in order of their layers");
  return layers;
}

/// Whether each stage of each replica has so many ranks, all of the same layers. They are in order.
bool have_all_ranks(const std::vector<ShardPlacement>& shards, std::size_t ranks) {
  if (shards.size() % ranks != 0) return false;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardPlacement& shard = shards[i];
    const ShardPlacement& first = shards[i - i % ranks];
    if (shard.tp_rank != i % ranks || shard.replica != first.replica ||
        shard.stage != first.stage || shard.first_layer != first.first_layer ||
        shard.last_layer != first.last_layer)
      return false;
  }
  return true;
}

void put_peer(Out& out, wire::Peer::Builder wire, const Peer& peer) {
  wire.setNode(peer.id.value);
  wire.setIncarnation(peer.incarnation.value);
  wire.setFabricAddress(out.name(peer.fabric_address, "the fabric's address"));
  wire.setToken({reinterpret_cast<const kj::byte*>(peer.token.data()), peer.token.size()});
  wire.setNccl(peer.nccl);
  wire.setReversed(peer.reversed);
}

Peer get_peer(In& in, wire::Peer::Reader wire) {
  Peer peer;
  peer.id = NodeId{wire.getNode()};
  peer.incarnation = Incarnation{wire.getIncarnation()};
  peer.fabric_address = in.name(wire.getFabricAddress(), "the fabric's address");
  const auto token = wire.getToken();
  in.require(token.size() == peer.token.size(), "a bulk-lane token has a wrong length");
  if (in.ok())
    std::ranges::copy(std::as_bytes(std::span(token.begin(), token.size())), peer.token.begin());
  peer.nccl = wire.getNccl();
  peer.reversed = wire.getReversed();
  return peer;
}

}  // namespace

void put(Out& out, wire::Placement::Builder wire, const Placement& placement) {
  wire.setVersion(placement.version.value);
  wire.setNumerics(static_cast<wire::Numerics>(placement.numerics));
  put_list(placement.replicas, wire.initReplicas(placement.replicas.size()),
           [](auto w, const ReplicaPlacement& replica) {
             w.setId(replica.id);
             w.setNode(replica.node.value);
             w.setKvBlocks(replica.kv_blocks);
           });
  put_list(placement.shards, wire.initShards(placement.shards.size()),
           [&](auto w, const ShardPlacement& shard) {
             w.setReplica(shard.replica);
             w.setStage(shard.stage);
             w.setTpRank(shard.tp_rank);
             w.setFirstLayer(shard.first_layer);
             w.setLastLayer(shard.last_layer);
             transport::put(out, w.initDevice(), shard.device);
           });
  put_experts(out, wire.initExperts(placement.experts.size()), placement.experts);
  put_experts(out, wire.initTier(placement.tier.size()), placement.tier);
}

Placement get_placement(In& in, wire::Placement::Reader wire, std::int32_t ranks) {
  Placement placement;
  placement.version = PlacementVersion{wire.getVersion()};
  placement.numerics = get_numerics(in, wire.getNumerics());
  placement.replicas = in.list<ReplicaPlacement>(wire.getReplicas(), [&](auto w) {
    return ReplicaPlacement{in.in_range(w.getId(), 0, kReplicasMax - 1, "a replica's id"),
                            NodeId{w.getNode()},
                            in.in_range(w.getKvBlocks(), 0, kInt32Max, "a count of KV blocks")};
  });
  placement.shards =
      in.list<ShardPlacement>(wire.getShards(), [&](auto w) { return get_shard(in, w); });
  placement.experts = get_experts(in, wire.getExperts());
  placement.tier = get_experts(in, wire.getTier());
  const auto by_place = [](const ShardPlacement& a, const ShardPlacement& b) {
    return std::tie(a.replica, a.stage, a.tp_rank) >= std::tie(b.replica, b.stage, b.tp_rank);
  };
  in.require(std::adjacent_find(placement.shards.begin(), placement.shards.end(), by_place) ==
                 placement.shards.end(),
             "the shards are not in order of replica, stage and rank");
  if (in.ok())
    in.require(have_all_ranks(placement.shards, static_cast<std::size_t>(ranks)),
               "a stage does not have all of its ranks");
  return placement;
}

void put(Out& out, wire::EngineOptions::Builder wire, const EngineOptions& engine) {
  wire.setModel(out.name(engine.model, "the model's path"));
  wire.setServedModelName(out.name(engine.served_model_name, "the served model's name"));
  wire.setMaxModelLen(engine.max_model_len);
  wire.setMaxNumSeqs(engine.max_num_seqs);
  wire.setMaxNumBatchedTokens(engine.max_num_batched_tokens);
  wire.setBlockSize(engine.block_size);
  wire.setKvCacheMemoryBytes(engine.kv_cache_memory);
  wire.setKvCacheDtype("auto");  // older nodes want it
  if (engine.seed) wire.getSeed().setValue(*engine.seed);
  wire.setRequestTimeoutS(engine.request_timeout_s);
  wire.setTensorParallelSize(engine.tensor_parallel_size);
  wire.setPipelineParallelSize(engine.pipeline_parallel_size);
  wire.setDataParallelSize(engine.data_parallel_size);
  wire.setRedundantExperts(engine.redundant_experts);
  wire.setMinDevices(engine.min_devices);
  wire.setPrefixCaching(engine.prefix_caching);
  if (engine.numerics) wire.getNumerics().setValue(static_cast<wire::Numerics>(*engine.numerics));
}

EngineOptions get_engine(In& in, wire::EngineOptions::Reader wire) {
  EngineOptions engine;
  engine.model = in.name(wire.getModel(), "the model's path");
  engine.served_model_name = in.name(wire.getServedModelName(), "the served model's name");
  engine.max_model_len = in.in_range(wire.getMaxModelLen(), 1, kInt32Max, "max_model_len");
  engine.max_num_seqs = in.in_range(wire.getMaxNumSeqs(), 1, kCountMax, "max_num_seqs");
  engine.max_num_batched_tokens =
      in.in_range(wire.getMaxNumBatchedTokens(), 1, kCountMax, "max_num_batched_tokens");
  engine.block_size = in.in_range(wire.getBlockSize(), 1, kCountMax, "block_size");
  engine.kv_cache_memory = wire.getKvCacheMemoryBytes();
  const auto seed = wire.getSeed();
  if (seed.isValue())
    engine.seed = seed.getValue();
  else
    in.require(seed.isNone(), "the seed has an unknown form");
  engine.request_timeout_s =
      in.in_range(wire.getRequestTimeoutS(), 0, kInt32Max, "request_timeout_s");
  engine.tensor_parallel_size =
      in.in_range(wire.getTensorParallelSize(), 1, limits::kTensorRanksMax, "tensor_parallel_size");
  in.require(is_tensor_size(engine.tensor_parallel_size),
             "tensor_parallel_size is no power of two");
  engine.pipeline_parallel_size =
      in.in_range(wire.getPipelineParallelSize(), 1, kStagesMax, "pipeline_parallel_size");
  engine.data_parallel_size =
      in.in_range(wire.getDataParallelSize(), 0, kReplicasMax, "data_parallel_size");
  engine.redundant_experts =
      in.in_range(wire.getRedundantExperts(), 0, limits::kExpertsMax, "redundant_experts");
  engine.min_devices = in.in_range(wire.getMinDevices(), 0, kCountMax, "min_devices");
  engine.prefix_caching = wire.getPrefixCaching();
  const auto numerics = wire.getNumerics();
  if (numerics.isValue())
    engine.numerics = get_numerics(in, numerics.getValue());
  else
    in.require(numerics.isNone(), "the numerics have an unknown form");
  return engine;
}

void put(Out& out, wire::Load::Builder wire, const Load& message) {
  put(out, wire.initPlacement(), message.placement);
  put(out, wire.initEngine(), message.engine);
  put_list(message.peers, wire.initPeers(message.peers.size()),
           [&](auto w, const Peer& peer) { put_peer(out, w, peer); });
}

Load get(In& in, wire::Load::Reader wire) {
  Load message;
  message.engine = get_engine(in, wire.getEngine());
  message.placement = get_placement(in, wire.getPlacement(), message.engine.tensor_parallel_size);
  const auto peers = wire.getPeers();
  in.require(peers.size() <= limits::kNodesMax, "a cluster has too many nodes");
  message.peers = in.list<Peer>(peers, [&](auto w) { return get_peer(in, w); });
  return message;
}

void put(Out&, wire::LoadProgress::Builder wire, const LoadProgress& message) {
  wire.setVersion(message.version.value);
  wire.setBytesDone(message.bytes_done);
  wire.setBytesTotal(message.bytes_total);
}

LoadProgress get(In& in, wire::LoadProgress::Reader wire) {
  in.require(wire.getBytesDone() <= wire.getBytesTotal(), "more bytes are loaded than there are");
  return {PlacementVersion{wire.getVersion()}, wire.getBytesDone(), wire.getBytesTotal()};
}

void put(Out&, wire::Loaded::Builder wire, const Loaded& message) {
  wire.setVersion(message.version.value);
}
Loaded get(In&, wire::Loaded::Reader wire) { return {PlacementVersion{wire.getVersion()}}; }

void put(Out& out, wire::LoadFailed::Builder wire, const LoadFailed& message) {
  wire.setVersion(message.version.value);
  put(out, wire.initError(), message.error);
}

LoadFailed get(In& in, wire::LoadFailed::Reader wire) {
  return {PlacementVersion{wire.getVersion()}, get(in, wire.getError())};
}

void put(Out&, wire::Activate::Builder wire, const Activate& message) {
  wire.setVersion(message.version.value);
}
Activate get(In&, wire::Activate::Reader wire) { return {PlacementVersion{wire.getVersion()}}; }

void put(Out&, wire::Activated::Builder wire, const Activated& message) {
  wire.setVersion(message.version.value);
}
Activated get(In&, wire::Activated::Reader wire) { return {PlacementVersion{wire.getVersion()}}; }

void put(Out&, wire::Retire::Builder wire, const Retire& message) {
  wire.setVersion(message.version.value);
}
Retire get(In&, wire::Retire::Reader wire) { return {PlacementVersion{wire.getVersion()}}; }

void put(Out& out, wire::Connect::Builder wire, const Connect& message) {
  put_peer(out, wire.initPeer(), message.peer);
}
Connect get(In& in, wire::Connect::Reader wire) { return {get_peer(in, wire.getPeer())}; }

void put(Out&, wire::ExpertCounts::Builder wire, const ExpertCounts& message) {
  put_list(message.layers, wire.initLayers(message.layers.size()),
           [](auto w, const ExpertCounts::Layer& layer) {
             w.setLayer(layer.layer);
             auto tokens = w.initTokens(layer.tokens.size());
             for (unsigned i = 0; i < layer.tokens.size(); ++i) tokens.set(i, layer.tokens[i]);
           });
}

ExpertCounts get(In& in, wire::ExpertCounts::Reader wire) {
  ExpertCounts message;
  message.layers = in.list<ExpertCounts::Layer>(wire.getLayers(), [&](auto w) {
    const auto tokens = w.getTokens();
    in.require(tokens.size() <= limits::kExpertsMax, "a layer has too many experts");
    return ExpertCounts::Layer{
        in.in_range(w.getLayer(), 0, limits::kLayersMax - 1, "a layer"),
        in.list<std::uint32_t>(tokens, [](std::uint32_t count) { return count; })};
  });
  return message;
}

void put(Out& out, wire::Avoid::Builder wire, const Avoid& message) {
  put_list(message.devices, wire.initDevices(message.devices.size()),
           [&](auto w, const DeviceRef& device) { transport::put(out, w, device); });
}
Avoid get(In& in, wire::Avoid::Reader wire) {
  return {in.list<DeviceRef>(wire.getDevices(), [&](auto w) { return get(in, w); })};
}

}  // namespace troupe::transport
