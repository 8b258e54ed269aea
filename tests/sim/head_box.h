#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/head/head.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// The head's box: its state folder, the process on it, and the programs that ask for drains and
/// rebalances.
class HeadBox final : private HeadSurroundings {
 public:
  explicit HeadBox(World& world) : world_(world) {}

  void start();
  void kill();
  bool up() const { return life_ != nullptr; }
  bool ended() const { return ended_; }  ///< in order
  /// While it is up; null until its first turn.
  const Supervisor* supervisor() const;
  const Router* router() const;

  template <class T>
  void tell_router(T&& message) {
    if (up()) life_->host.post().tell(life_->head.router(), std::forward<T>(message));
  }
  void stop(const std::string& reason);

  // What programs ask for.
  void drain(NodeId node);
  void rebalance();
  bool operations_over() const;

 private:
  /// A program with one question.
  struct Program {
    std::unique_ptr<HeadLink> link;
    std::uint64_t query = 0;
    bool over = false;
  };
  /// Of the process.
  struct Life {
    Life(HeadBox& box, SupervisorOptions options);
    ~Life();
    SimHost host;
    Head head;
    std::vector<std::unique_ptr<Program>> programs;
  };
  SupervisorOptions options();
  template <class Query>
  void ask(Query query);
  void answer(Program& program, const Message& message);

  // HeadSurroundings
  void keep_next_node(std::uint32_t next_node) override { kept_next_node_ = next_node; }
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
  // Of all lives.
  std::uint64_t newest_incarnation_ = 0;
  std::map<Incarnation, NodeId> given_;
};

}  // namespace troupe::sim
