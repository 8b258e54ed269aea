#pragma once

#include <map>
#include <set>

#include "runtime/clock.h"
#include "transport/message.h"

namespace troupe::sim {

class World;

/// Connections between workers. One comes about when both ends present the same token, which the
/// head drew for them, within their deadlines.
class BulkLane {
 public:
  explicit BulkLane(World& world) : world_(world) {}

  /// A worker expects a peer, or goes to it.
  void open(int worker, const Peer& peer, Duration deadline);
  /// False when the connection is not there.
  bool send(int worker, const FabricToken& token, const Envelope& envelope);
  /// A worker ends it; the other end hears of that.
  void close(int worker, const FabricToken& token);
  void worker_died(int worker);
  /// Somebody in between resets the connections of two workers.
  void reset(int a, int b);

 private:
  struct End {
    int life = 0;
    Peer peer;
  };
  struct Pair {
    std::map<int, End> ends;  ///< by worker
    std::uint32_t connection = 0;
    bool up = false;
  };
  void meet(const FabricToken& token);
  void give_up(int worker, int life, const FabricToken& token);
  void tell_down(int worker, const End& end, const char* reason);

  World& world_;
  std::map<FabricToken, Pair> pairs_;
};

}  // namespace troupe::sim
