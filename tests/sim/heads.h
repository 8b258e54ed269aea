#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "tests/sim/head_box.h"

namespace troupe::sim {

/// The machines that may have a head: one, or two of which one follows the other. Clients are with
/// the newest head that lives.
class Heads {
 public:
  Heads(World& world, const History& history);

  void start();
  void kill();  ///< all of them
  /// The head dies, or the standby, as the fault says; then `died` runs.
  void strike(const Fault& fault, Task died);
  void spare();  ///< who was to die later, and did not, lives on
  void start_dead();
  void hang();
  void go_on(bool clock_stood);
  void stop(const std::string& reason);
  /// Machines of heads: the one that clients are with first.
  std::vector<int> machines() const;

  HeadBox& door() { return *door_; }
  const HeadBox& door() const { return *door_; }
  HeadBox& other(const HeadBox& box) { return *boxes_[boxes_.front().get() == &box ? 1 : 0]; }
  bool is_door(const HeadBox& box) const { return door_ == &box; }
  /// A head came or went: clients go to the newest.
  void look();

  // Of the head that clients are with.
  bool up() const { return door_->up(); }
  bool ended() const;
  bool any_up() const;
  const Supervisor* supervisor() const { return door_->supervisor(); }
  const Router* router() const { return door_->router(); }
  TimePoint started() const { return door_->started(); }
  template <class T>
  void tell_router(T&& message) {
    door_->tell_router(std::forward<T>(message));
  }
  void drain(NodeId node) { door_->drain(node); }
  void rebalance() { door_->rebalance(); }
  void measure() { door_->measure(); }
  void crashed(NodeId node, Incarnation life) { door_->crashed(node, life); }
  bool operations_over() const { return door_->operations_over(); }
  /// The head's disk does not take its journal, and it says so.
  bool distrusts_disk() const { return door_->journal().distrusted(); }
  /// A record that the codec does not take; empty: none.
  std::string broken_record() const;
  std::uint64_t takeovers() const { return takeovers_; }
  /// A life of a worker that a head has now. New ones are above `newest`; those that went on under
  /// another head count in lives_kept().
  void note_life(const HeadBox& box, Incarnation life, NodeId node, std::uint64_t& newest);
  std::uint64_t lives_kept() const { return lives_kept_; }

 private:
  HeadBox* of(FaultKind kind) const;
  HeadBox* newest() const;
  void go_to(HeadBox* next);

  World& world_;
  std::vector<std::unique_ptr<HeadBox>> boxes_;
  HeadBox* door_;
  bool with_ = false;   ///< clients are with a head
  bool going_ = false;  ///< and will go to another
  std::uint64_t takeovers_ = 0;
  struct Given {
    NodeId node;
    std::uint64_t head = 0;  ///< the newest life of a head that had it
  };
  std::map<Incarnation, Given> given_;
  std::uint64_t lives_kept_ = 0;
};

}  // namespace troupe::sim
