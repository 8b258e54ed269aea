#include "tests/sim/heads.h"

#include <algorithm>

#include "actors/supervisor/supervisor.h"
#include "tests/sim/world.h"

namespace troupe::sim {

Heads::Heads(World& world, const History& history) : world_(world) {
  const bool standby = history.shape.standby;
  const int second = history.shape.workers + 1;
  boxes_.push_back(std::make_unique<HeadBox>(world, 0, standby ? second : -1, false, history.seed,
                                             history.mutation));
  if (standby)
    boxes_.push_back(std::make_unique<HeadBox>(world, second, 0, true, history.seed + 1,
                                               history.mutation));
  door_ = boxes_.front().get();
}

void Heads::start() { boxes_.front()->start(); }

void Heads::kill() {
  for (const auto& box : boxes_) box->kill();
}

/// The box that the fault is about; null: none is there now.
HeadBox* Heads::of(FaultKind kind) const {
  for (const auto& box : boxes_)
    if (kind == FaultKind::kStandbyDies ? box->standby() != nullptr
                                        : box->up() || boxes_.size() == 1)
      return box.get();
  return nullptr;
}

void Heads::strike(const Fault& fault, Task died) {
  HeadBox* const box = of(fault.kind);
  if (!box) return;
  if (fault.act > 0) return box->die_at(fault.act, fault.power_cut, std::move(died));
  box->kill(fault.power_cut);
  died();
}

void Heads::spare() {
  for (const auto& box : boxes_) box->spare();
}

void Heads::start_dead() {
  for (const auto& box : boxes_) box->start();
}

void Heads::hang() { door_->hang(); }

void Heads::go_on(bool clock_stood) {
  for (const auto& box : boxes_) box->go_on(clock_stood);
}

void Heads::stop(const std::string& reason) { door_->stop(reason); }

std::vector<int> Heads::machines() const {
  std::vector<int> machines = {door_->machine()};
  for (const auto& box : boxes_)
    if (box.get() != door_) machines.push_back(box->machine());
  return machines;
}

HeadBox* Heads::newest() const {
  HeadBox* found = nullptr;
  for (const auto& box : boxes_)
    if (box->up() && (!found || box->started() > found->started())) found = box.get();
  return found;
}

void Heads::look() {
  HeadBox* const next = newest();
  if (next == door_ && with_) return;
  if (!door_->up() || !with_) return go_to(next);
  // Who is with a head that lives does not know at once of another.
  if (std::exchange(going_, true)) return;
  world_.loop.after(world_.loop.pick_ms(0, 3000), [this] {
    going_ = false;
    if (HeadBox* const then = newest(); then != door_) go_to(then);
  });
}

void Heads::go_to(HeadBox* next) {
  if (std::exchange(with_, next != nullptr)) world_.clients.head_died();
  if (!next || next == door_) return;
  ++takeovers_;
  door_ = next;
}

bool Heads::ended() const {
  return std::ranges::all_of(boxes_, [](const auto& box) { return box->ended(); });
}

bool Heads::any_up() const {
  return std::ranges::any_of(boxes_, [](const auto& box) { return box->alive(); });
}

std::string Heads::broken_record() const {
  for (const auto& box : boxes_)
    if (!box->journal().broken().empty()) return box->journal().broken();
  return {};
}

void Heads::note_life(const HeadBox& box, Incarnation life, NodeId node, std::uint64_t& newest) {
  const std::uint64_t head = box.incarnation().value;
  const auto [it, added] = given_.try_emplace(life, Given{node, head});
  if (it->second.node != node) world_.broken("Two nodes got the same incarnation.");
  if (added && life.value <= newest) world_.broken("An incarnation came again.");
  if (added) newest = life.value;
  if (head < it->second.head) world_.broken("An older head took a life back.");
  if (std::exchange(it->second.head, head) != head) ++lives_kept_;
}

}  // namespace troupe::sim
