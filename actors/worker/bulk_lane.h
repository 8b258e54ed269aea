#pragma once

#include <string>
#include <vector>

#include "actors/node_agent/node_progress.h"
#include "transport/bulk_address.h"
#include "transport/message.h"

namespace troupe {

/// What a bulk lane tells its worker, from a thread of its own; must not block. Of one peer life:
/// `on_peer_up`, then `on_envelope` in the order sent (of messages with a tensor, and of those
/// without, which overtake), then `on_peer_down` once; or only `on_peer_down` when no connection
/// came about. After `BulkLane::forget` nothing more.
class BulkEvents {
 public:
  virtual ~BulkEvents() = default;
  virtual void on_envelope(NodeId node, Incarnation incarnation, Envelope envelope) = 0;
  virtual void on_peer_up(NodeId node, Incarnation incarnation) = 0;
  virtual void on_peer_down(NodeId node, Incarnation incarnation, LinkEnd end) = 0;
};

/// The way to other workers: envelopes over one connection per pair of nodes. In a process it is
/// FabricLane (libfabric and the codec); the simulation has a network of its own. Thread-safe; no
/// call blocks.
class BulkLane {
 public:
  virtual ~BulkLane() = default;

  /// Once, before anything else.
  virtual void listen(BulkEvents& events) = 0;
  /// The ends of the newest control connection: others find this node by one of them.
  virtual void come_by(const ControlWay&) {}
  virtual std::string address() const = 0;   ///< where peers find this node; opaque
  virtual std::string describe() const = 0;  ///< what was chosen and why, for the status
  virtual FabricPort port() const { return {}; }  ///< the same in parts

  /// From now on this node is that life of it. All peers are forgotten, without a fence.
  virtual void identify(NodeId node, Incarnation incarnation) = 0;
  /// Admits a peer that comes with its token.
  virtual Status expect(const Peer& peer) = 0;
  /// Goes to a peer.
  virtual Status connect(const Peer& peer) = 0;
  /// Closes the connection. Lives up to this one stay refused when `fence` is set.
  virtual void forget(NodeId node, Incarnation incarnation, bool fence) = 0;
  virtual Status send(NodeId node, Incarnation incarnation, const Envelope& envelope) = 0;

  /// Has a peer that is up send a sign of life, whatever its actors are at.
  virtual void ask(NodeId node, Incarnation incarnation) = 0;
  virtual std::vector<PeerTraffic> traffic() const = 0;  ///< of all peers that are up
};

}  // namespace troupe
