#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/shell.h"
#include "tests/sim/loop.h"

namespace troupe::sim {

class World;
class SimMailbox;

/// The base of SimHost that is made before its Host.
struct OwnPost {
  Post own_post;
};

/// One life of a simulated process: its post office and its actors, in virtual time. A message
/// takes a moment from hand to hand. A process that hangs holds what is due until it goes on; of
/// one that is dead nothing runs any more, but its objects stay until the world ends, because what
/// is under way may still refer to them.
class SimHost final : private OwnPost, public Host {
 public:
  SimHost(World& world, int machine);
  ~SimHost() override;

  /// The process's own monotonic clock; no two machines' agree.
  TimePoint now() const override { return loop_.now() + clock_offset_; }
  /// The clock stands still with the process: what has passed since it hung never was.
  void forget_hang() {
    clock_offset_ -= loop_.now() - hung_at_;
    clock_stood_ = true;
  }
  bool clock_stood() const { return clock_stood_; }
  void spawn(const Address& address, const Make& make, Mail ended) override;
  void end(const Address& address) override;
  bool checks_invariants() const override;
  void broken(const Address& actor, const std::string& invariant) override;

  /// Runs in this process: at once, or when it goes on if it hangs; never once it is dead.
  void run(Task task);
  void later(Duration delay, Task task);

  void hang() {
    if (!hung_) hung_at_ = loop_.now();
    hung_ = alive_;
  }
  void go_on();
  void kill();
  bool alive() const { return alive_; }
  /// Before anything of it reaches what lies outside: a peer, a client, the disk. False: it has
  /// died before that, in the middle of a turn maybe.
  bool acts();
  std::uint64_t acted() const { return acted_; }  ///< so often
  /// It dies instead of its act of that number from now on, from 1 on; `died` runs in a moment.
  void die_at(std::uint64_t act, Task died);
  void spare() { dies_at_ = 0; }
  bool hung() const { return hung_; }
  /// Destroys the actors that are left. The process is dead, and no turn is under way.
  void clear();

  World& world() { return world_; }
  Loop& loop() { return loop_; }
  int machine() const { return machine_; }

  /// The machine of the actor at that address; null if there is none of that kind.
  template <class Machine, class Hands>
  const Machine* find(const Address& address) const {
    const auto* shell = dynamic_cast<const Shell<Machine, Hands>*>(actor_at(address));
    return shell ? &shell->machine() : nullptr;
  }
  /// Those that have not been told to end, by address.
  const std::map<Address, std::shared_ptr<SimMailbox>>& actors() const { return actors_; }

 private:
  const Actor* actor_at(const Address& address) const;

  World& world_;
  Loop& loop_;
  const int machine_;
  Duration clock_offset_;
  TimePoint hung_at_{};
  bool clock_stood_ = false;
  bool alive_ = true;
  std::uint64_t acted_ = 0;
  std::uint64_t dies_at_ = 0;  // 0: at none
  Task died_;
  bool hung_ = false;
  std::vector<Task> held_;  // while it hangs
  std::map<Address, std::shared_ptr<SimMailbox>> actors_;
};

}  // namespace troupe::sim
