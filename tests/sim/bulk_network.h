#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "actors/worker/bulk_lane.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

class SimLane;

/// Connections between workers. One comes about when both ends present the same token, which the
/// head drew for them, within their deadlines.
class BulkNetwork {
 public:
  explicit BulkNetwork(World& world) : world_(world) {}

  /// A worker expects a peer, or goes to it.
  void open(SimLane& lane, const Peer& peer, Duration deadline);
  /// False when the connection is not there.
  bool send(const SimLane& lane, const FabricToken& token, const Envelope& envelope);
  /// The other end's fabric answers, whatever its process is at, unless it stands still.
  void ask(const SimLane& lane, const FabricToken& token);
  /// A worker ends it; the other end hears of that.
  void close(const SimLane& lane, const FabricToken& token);
  /// Its process died: its kernel closes what it had.
  void died(const SimLane& lane);
  /// Somebody in between resets the connections of two machines.
  void reset(int a, int b);

 private:
  struct End {
    SimLane* lane = nullptr;
    Peer peer;
  };
  struct Pair {
    FabricToken token{};
    std::map<int, End> ends;  ///< by machine
    std::uint32_t connection = 0;
    bool up = false;

    bool has(const SimLane& lane) const;
  };
  /// Runs at the other end of it, if it still has one.
  using Arrive = std::function<void(const End& at)>;
  using Pairs = std::map<std::uint64_t, Pair>;
  bool carry(int from, std::uint64_t pair, Arrive arrive);
  void meet(std::uint64_t pair);
  void give_up(const SimLane& lane, std::uint64_t pair);
  Pairs::iterator find(const SimLane& lane, const FabricToken& token);

  World& world_;
  /// By number: who lets go may come again with the same token before the other end hears of that.
  Pairs pairs_;
  std::uint64_t next_ = 0;
};

/// One process's end of it.
class SimLane final : public BulkLane {
 public:
  SimLane(SimHost& host, BulkNetwork& network) : host_(host), network_(network) {}

  void listen(BulkEvents& events) override { events_ = &events; }
  std::string address() const override { return "bulk-" + std::to_string(host_.machine()); }
  std::string describe() const override { return "simulated"; }
  void identify(NodeId node, Incarnation incarnation) override;
  Status expect(const Peer& peer) override;
  Status connect(const Peer& peer) override;
  void forget(NodeId node, Incarnation incarnation, bool fence) override;
  Status send(NodeId node, Incarnation incarnation, const Envelope& envelope) override;
  void ask(NodeId node, Incarnation incarnation) override;
  std::vector<PeerTraffic> traffic() const override;

  SimHost& host() const { return host_; }
  void heard(const Peer& peer);
  void up(const Peer& peer);
  void down(const Peer& peer, const std::string& reason);
  void arrive(const Peer& peer, const Envelope& envelope);

 private:
  using Life = std::pair<NodeId, Incarnation>;
  Status seek(const Peer& peer, Duration deadline);
  bool knows(const Peer& peer) const;

  SimHost& host_;
  BulkNetwork& network_;
  BulkEvents* events_ = nullptr;
  std::map<Life, FabricToken> known_;   // what was not forgotten: no news of others
  std::map<Life, PeerTraffic> traffic_;  // of those that are up
  std::map<NodeId, Incarnation> fenced_;
};

}  // namespace troupe::sim
