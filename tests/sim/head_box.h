#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/head/head_surroundings.h"
#include "actors/supervisor/options.h"
#include "tests/sim/sim_host.h"

namespace troupe {
class Router;
}

namespace troupe::sim {

/// The head's box: its state folder, the process on it, and the programs that ask for drains and
/// rebalances.
class HeadBox final : private HeadSurroundings {
 public:
  explicit HeadBox(World& world);
  ~HeadBox() override;

  void start();
  void kill();
  void hang();
  void go_on(bool clock_stood);
  bool up() const { return life_ != nullptr; }
  bool ended() const { return ended_; }  ///< in order
  /// While it is up; null until its first turn.
  const Supervisor* supervisor() const;
  const Router* router() const;

  template <class T>
  void tell_router(T&& message) {
    if (up()) post().tell(router_address(), std::forward<T>(message));
  }
  void stop(const std::string& reason);

  // What programs ask for.
  void drain(NodeId node);
  void rebalance();
  /// What the process of that life left behind tells that it crashed.
  void crashed(NodeId node, Incarnation life);
  bool operations_over() const;

 private:
  struct Program;  ///< with one question
  struct Life;     ///< of the process
  Post& post();
  Ref<RouterInbox> router_address() const;
  SupervisorOptions options();
  template <class Query>
  void ask(Query query);
  void answer(Program& program, const Message& message);

  // HeadSurroundings
  void keep(const KeepNextNode& e) override { kept_next_node_ = e.next_node; }
  void keep(const KeepNumerics& e) override { known_.numerics = e.numerics; }
  void keep(const KeepTensors& e) override;
  void keep(const KeepCanary& e) override { known_.canary = e.canary; }
  void keep(const ForgetKnown&) override { known_ = {}; }
  void read(ReadTensors wanted) override;
  void noted(const ClusterEvent&) override {}
  void counted(const ExpertCounts&) override {}
  void measured(const ImbalanceMeasured&) override {}
  std::string status(const Supervisor& supervisor) override;
  void changed(const Supervisor& supervisor) override;
  void may_end() override;

  World& world_;
  std::vector<std::unique_ptr<Life>> lives_;
  Life* life_ = nullptr;  // the one that is up
  bool ended_ = false;
  std::uint64_t next_query_ = 1;
  // In the state folder.
  std::uint64_t kept_incarnation_ = 0;
  std::uint32_t kept_next_node_ = 1;
  KnownState known_;
  // Of all lives.
  std::uint64_t newest_incarnation_ = 0;
  std::map<Incarnation, NodeId> given_;
};

}  // namespace troupe::sim
