#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/worker/bulk_lane.h"
#include "transport/nccl/node.h"
#include "transport/parcels/parcel_receiver.h"
#include "transport/parcels/parcel_sender.h"

namespace troupe {

/// A bulk lane that sends hidden rows, rows for experts and their outputs by NCCL to peers that
/// have the same one, and all else by another lane: the parts of tensor-parallel ranks too, which
/// go there only while the ranks' own communicator is not up.
///
/// Communicators are between the first GPUs of two workers, since the tensors are in host memory.
/// They are formed when the first tensor goes to a peer that a version of the placement has made
/// one, and kept as long as versions do.
class NcclLane final : public BulkLane, private BulkEvents {
 public:
  /// `nccl` must live until end().
  NcclLane(std::unique_ptr<BulkLane> other, nccl::Node& nccl)
      : nccl_(nccl), other_(std::move(other)) {}
  ~NcclLane() override;
  /// Nothing goes by NCCL any more.
  void end();

  void listen(BulkEvents& events) override;
  std::string address() const override { return other_->address(); }
  std::string describe() const override { return other_->describe(); }
  FabricPort port() const override { return other_->port(); }
  void identify(NodeId node, Incarnation incarnation) override;
  Status expect(const Peer& peer) override;
  Status connect(const Peer& peer) override;
  void forget(NodeId node, Incarnation incarnation, bool fence) override;
  Status send(NodeId node, Incarnation incarnation, const Envelope& envelope) override;
  void ask(NodeId node, Incarnation incarnation) override { other_->ask(node, incarnation); }
  std::vector<PeerTraffic> traffic() const override { return other_->traffic(); }

 private:
  using Life = std::pair<NodeId, Incarnation>;
  struct Pair {
    std::shared_ptr<ParcelSender> sender;
    std::shared_ptr<ParcelReceiver> receiver;
    void close() const;
  };

  void on_envelope(NodeId node, Incarnation incarnation, Envelope envelope) override;
  void on_peer_up(NodeId node, Incarnation incarnation) override;
  void on_peer_down(NodeId node, Incarnation incarnation, LinkEnd end) override;

  void know(const Peer& peer);
  Pair make_pair(const Life& life);
  Pair find(const Life& life) const;
  Pair take(const Life& life);
  void fail(const Life& life, const Error& why);

  nccl::Node& nccl_;
  BulkEvents* events_ = nullptr;  // set before there are peers
  mutable std::mutex mutex_;
  // guarded by mutex_
  NodeId self_;
  Incarnation incarnation_;
  std::map<Life, Pair> pairs_;  ///< of peers with the same NCCL; of those that are up, in use
  bool ended_ = false;
  std::unique_ptr<BulkLane> other_;  ///< goes first: its thread uses the rest
};

}  // namespace troupe
