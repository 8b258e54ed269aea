#pragma once

#include <memory>
#include <string>

#include "actors/worker/bulk_lane.h"
#include "transport/fabric/fabric.h"

namespace troupe {

/// The bulk lane of a process: frames of libfabric, read and written by the codec.
class FabricLane final : public BulkLane, private transport::FabricEvents {
 public:
  static Result<std::unique_ptr<FabricLane>> make(const transport::FabricOptions& options);
  ~FabricLane() override;

  void listen(BulkEvents& events) override { events_ = &events; }
  void come_by(const ControlWay& way) override { fabric_->come_by(way); }
  std::string address() const override { return fabric_->address(); }
  std::string describe() const override { return fabric_->describe(); }
  FabricPort port() const override { return fabric_->port(); }
  void identify(NodeId node, Incarnation incarnation) override;
  Status expect(const Peer& peer) override;
  Status connect(const Peer& peer) override;
  void forget(NodeId node, Incarnation incarnation, bool fence) override;
  Status send(NodeId node, Incarnation incarnation, const Envelope& envelope) override;
  void ask(NodeId node, Incarnation incarnation) override { fabric_->ask({node, incarnation}); }
  std::vector<PeerTraffic> traffic() const override;

 private:
  FabricLane() = default;
  void on_frame(transport::PeerKey from, transport::Frame frame) override;
  void on_peer_up(transport::PeerKey peer) override;
  void on_peer_down(transport::PeerKey peer, LinkEnd end) override;

  BulkEvents* events_ = nullptr;  // set before there are peers
  std::unique_ptr<transport::Fabric> fabric_;
};

}  // namespace troupe
