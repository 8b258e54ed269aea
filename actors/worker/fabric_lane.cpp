#include "actors/worker/fabric_lane.h"

#include <span>
#include <utility>
#include <vector>

#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe {

using transport::Frame;
using transport::PeerKey;

Result<std::unique_ptr<FabricLane>> FabricLane::make(const transport::FabricOptions& options) {
  std::unique_ptr<FabricLane> lane(new FabricLane);
  auto fabric = transport::make_libfabric(options, *lane);
  if (!fabric.ok()) return fabric.error();
  lane->fabric_ = std::move(*fabric);
  return lane;
}

FabricLane::~FabricLane() {
  // Its own thread may still use `fabric_`, so the pointer goes after the object.
  delete fabric_.get();
  (void)fabric_.release();
}

void FabricLane::identify(NodeId node, Incarnation incarnation) {
  fabric_->identify({node, incarnation});
}

Status FabricLane::expect(const Peer& peer) {
  return fabric_->expect({peer.id, peer.incarnation}, peer.fabric_address, peer.token);
}

Status FabricLane::connect(const Peer& peer) {
  return fabric_->connect({peer.id, peer.incarnation}, peer.fabric_address, peer.token);
}

void FabricLane::forget(NodeId node, Incarnation incarnation, bool fence) {
  fabric_->forget({node, incarnation}, fence);
}

Status FabricLane::send(NodeId node, Incarnation incarnation, const Envelope& envelope) {
  // Peers do not say what they speak: it is what any member may.
  if (protocol_of(*envelope.message) > kProtocol.oldest)
    return refused("A peer may be of an older version of Troupe, which does not know this.");
  auto encoded = transport::encode(envelope);
  if (!encoded.ok()) return encoded.error();
  auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(*encoded));
  Frame frame;
  frame.header = {bytes, std::span(*bytes), MemoryKind::kHost};
  if (const Payload* payload = transport::payload_of(*envelope.message)) frame.payload = *payload;
  return fabric_->send({node, incarnation}, std::move(frame));
}

std::vector<PeerTraffic> FabricLane::traffic() const {
  std::vector<PeerTraffic> traffic;
  for (const auto& [peer, sent, heard] : fabric_->traffic())
    traffic.push_back({peer.node, peer.incarnation, sent, heard});
  return traffic;
}

void FabricLane::on_frame(PeerKey from, Frame frame) {
  auto decoded = transport::decode(frame.header.bytes, frame.payload);
  if (!decoded.ok()) {
    logger().warn("{} sent a message that cannot be read: {}", to_string(from.node),
                  decoded.error().message);
    fabric_->forget(from, false);
    return on_peer_down(from, {decoded.error().message});
  }
  events_->on_envelope(from.node, from.incarnation, std::move(*decoded));
}

void FabricLane::on_peer_up(PeerKey peer) { events_->on_peer_up(peer.node, peer.incarnation); }

void FabricLane::on_peer_down(PeerKey peer, LinkEnd end) {
  events_->on_peer_down(peer.node, peer.incarnation, std::move(end));
}

}  // namespace troupe
