#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/head/head_surroundings.h"
#include "actors/standby/follow_state.h"
#include "actors/supervisor/options.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/sim_journal.h"

namespace troupe {
class Router;
class Standby;
}

namespace troupe::sim {

/// The head's box: its state folder, the process on it, and the programs that ask for drains and
/// rebalances. With a partner it is a head that is followed, or the standby that follows.
class HeadBox final : private HeadSurroundings {
 public:
  /// `partner`: the machine that it follows, or is followed by; -1: none.
  HeadBox(World& world, int machine, int partner, bool follows, std::uint64_t seed,
          Mutation mutation);
  ~HeadBox() override;

  void start();
  /// `power_cut`: what its disk has not synced may be gone.
  void kill(bool power_cut = false);
  /// Instead of its act of that number from now on (SimHost::acts); then `died` runs. While one is
  /// to come, the next one is of the process that follows, from its beginning on.
  void die_at(std::uint64_t act, bool power_cut, Task died);
  void spare();  ///< whoever has not died does not
  void hang();
  void go_on(bool clock_stood);
  /// Whether a head runs here.
  bool up() const { return life_ != nullptr; }
  /// Whether anything does.
  bool alive() const;
  int machine() const { return machine_; }
  const Standby* standby() const;
  bool ended() const { return ended_; }  ///< in order
  /// While it is up; null until its first turn.
  const Supervisor* supervisor() const;
  /// Of its newest life as a head.
  Incarnation incarnation() const { return Incarnation{kept_incarnation_}; }
  const Router* router() const;
  /// When this life began.
  TimePoint started() const { return started_; }
  const SimJournal& journal() const { return journal_; }

  template <class T>
  void tell_router(T&& message) {
    if (up()) post().tell(router_address(), std::forward<T>(message));
  }
  void stop(const std::string& reason);

  // What programs ask for.
  void drain(NodeId node);
  void rebalance();
  void measure();  ///< the links between workers
  /// What the process of that life left behind tells that it crashed.
  void crashed(NodeId node, Incarnation life);
  bool operations_over() const;

 private:
  struct Program;  ///< with one question
  struct Life;     ///< of the process, as a head
  struct Follower;  ///< the same, as a standby
  struct Asker;     ///< the same, while it asks whether it may be the head
  friend struct StandbyDouble;
  void lead();
  void follow();
  void ask_partner();
  void take_over();
  void become_follower();
  SimHost* host();  ///< of the process; null: none
  void arrange_death();
  Post& post();
  Ref<RouterInbox> router_address() const;
  SupervisorOptions options();
  template <class Query>
  void ask(Query query);
  void answer(Program& program, const Message& message);

  // HeadSurroundings
  void keep(const KeepNextNode& e) override;
  void keep(const KeepNumerics& e) override;
  void keep(const KeepTensors& e) override;
  void keep(const KeepCanary& e) override;
  void keep(const ForgetKnown&) override;
  void keep(const KeepStandby& e) override;
  void copy(const CopyKnown&) override {}
  void ask(const AskStandby& standby) override;
  void read(ReadTensors wanted) override;
  void noted(const ClusterEvent& event) override;
  void counted(const ExpertCounts&) override {}
  void measured(const ImbalanceMeasured&) override {}
  void measured(const LoadsMeasured&) override {}
  std::string status(const Supervisor& supervisor) override;
  void changed(const Supervisor& supervisor) override;
  void may_end(const HeadMayEnd& end) override;

  World& world_;
  const int machine_, partner_;
  std::vector<std::unique_ptr<Life>> lives_;
  Life* life_ = nullptr;  // the one that is up
  std::vector<std::unique_ptr<Follower>> followers_;
  Follower* follower_ = nullptr;
  std::vector<std::unique_ptr<Asker>> askers_;
  Asker* asker_ = nullptr;
  struct Death {
    std::uint64_t act = 0;
    bool power_cut = false;
    Task died;
  };
  std::deque<Death> deaths_;  // to come, each of another process
  bool ended_ = false;
  TimePoint started_{};
  std::uint64_t next_query_ = 1;
  // In the state folder.
  std::uint64_t kept_incarnation_ = 0;
  std::uint32_t kept_next_node_ = 1;
  KnownState known_;
  SimJournal journal_;
  std::string standby_at_;      // who may have taken over
  bool follows_;                // it is the standby
  FollowState following_;       // as such
  // Of all lives.
  std::uint64_t newest_incarnation_ = 0;
};

}  // namespace troupe::sim
