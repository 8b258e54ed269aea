#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/supervisor/status.h"
#include "runtime/log.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/head_box.h"
#include "tests/sim/head_lives.h"
#include "tests/sim/world.h"

// What a box's processes do to what lies around them.

namespace troupe::sim {

using namespace std::chrono_literals;

// --- As a standby -------------------------------------------------------------------------------

void StandbyDouble::carry_out(SeekHead&&, const Standby&) { life->link.connect(); }
void StandbyDouble::carry_out(LeaveHead&&, const Standby&) { life->link.close(); }
void StandbyDouble::carry_out(ToHead&& e, const Standby&) {
  (void)life->link.send({life->mail.self.address, {}, std::move(e.message)});
}
void StandbyDouble::carry_out(ToSession&& e, const Standby&) {
  const StandbyMail& mail = life->mail;
  (void)box->world_.control.send(
      e.session, {mail.self.address, mail.address_of(e.session), std::move(e.message)});
}
void StandbyDouble::carry_out(EndSession&& e, const Standby&) {
  box->world_.control.close(e.session, e.reason);
}
void StandbyDouble::carry_out(KeepCopy&& e, const Standby&) {
  if (life->host.acts()) box->journal_.keep(std::move(e.records));
}
void StandbyDouble::carry_out(KeepFollowing&& e, const Standby&) {
  if (!life->host.acts()) return;
  box->following_ = e.state;
  if (!e.state.cluster_id.empty()) box->journal_.learn_cluster(e.state.cluster_id);
}
void StandbyDouble::carry_out(TakeOver&&, const Standby&) {
  life->host.later({}, [b = box] { b->take_over(); });
}
void StandbyDouble::carry_out(StandbyEnds&& e, const Standby&) {
  if (!life->host.alive()) return;
  if (e.code != 0) box->world_.broken("A standby gave up: " + e.reason);
  box->ended_ = true;
  life->host.later({}, [b = box] { b->kill(); });
}

// --- Programs -----------------------------------------------------------------------------------

template <class Query>
void HeadBox::ask(Query query) {
  if (!up()) return;
  life_->programs.push_back(std::make_unique<Program>());
  Program& program = *life_->programs.back();
  program.query = query.query = next_query_++;
  program.link = life_->head.hub().make_local_link();
  program.link->listen({[](const ControlWay&) {},
                        [this, &program](const Envelope& e) { answer(program, *e.message); },
                        [](const std::string&, bool) {}});
  program.link->connect();
  const Address to = life_->head.supervisor().address;
  (void)program.link->send({{}, to, message_of(ClientHello{kProtocol, "simulation"})});
  (void)program.link->send({{}, to, message_of(StatusQuery{next_query_++})});
  (void)program.link->send({{}, to, message_of(std::move(query))});
}

void HeadBox::answer(Program& program, const Message& message) {
  const auto* news = std::get_if<OperationProgress>(&message);
  if (!news) return;
  if (news->query != program.query || program.over)
    world_.broken("News of an operation that is over.");
  if (!news->finished) return;
  program.over = true;
  life_->host.later({}, [&program] { program.link->close(); });
}

void HeadBox::drain(NodeId node) { ask(DrainQuery{0, node}); }

void HeadBox::rebalance() { ask(RebalanceQuery{0}); }

void HeadBox::measure() { ask(NetworkQuery{0, {}, 0, {1u << 20}, true, false}); }

void HeadBox::crashed(NodeId node, Incarnation life) {
  ask(CrashReport{0, node, life, 11, "a request that kills its workers"});
}

bool HeadBox::operations_over() const {
  if (!up()) return true;
  for (const auto& program : life_->programs)
    if (!program->over) return false;
  return true;
}

// --- What lies around its actors ----------------------------------------------------------------

void HeadBox::keep(const KeepNextNode& e) {
  if (host()->acts()) kept_next_node_ = e.next_node;
}

void HeadBox::keep(const KeepNumerics& e) {
  if (!host()->acts()) return;
  known_.numerics = e.numerics;
  journal_.learn_numerics(e.numerics);
}

void HeadBox::keep(const KeepCanary& e) {
  if (host()->acts()) known_.canary = e.canary;
}

void HeadBox::keep(const ForgetKnown&) {
  if (host()->acts()) known_ = {};
}

void HeadBox::keep(const KeepTensors& e) {
  if (!host()->acts()) return;
  for (const KnownTensor& tensor : e.tensors) {
    std::erase_if(known_.tensors,
                  [&](const auto& known) { return known.proof.tensor == tensor.proof.tensor; });
    known_.tensors.push_back(tensor);
  }
}

void HeadBox::read(ReadTensors wanted) {
  TensorsRead read{wanted.reading, wanted.fresh, {}, 0, {}};
  for (const std::string& tensor : wanted.tensors) read.tensors.push_back(proof_of(tensor));
  life_->host.later(std::chrono::milliseconds(world_.loop.pick(1, 20)),
                    [this, life = life_, read = std::move(read)]() mutable {
                      life->host.post().tell(life->head.supervisor(), std::move(read));
                    });
}

void HeadBox::noted(const ClusterEvent& event) {
  logger().info("{}: {}", event.kind, event.text);
}

std::string HeadBox::status(const Supervisor& supervisor) {
  return status_json(supervisor, {}, life_->host.now());
}

void HeadBox::changed(const Supervisor& supervisor) {
  if (!host()->alive()) return;
  for (const auto& [id, member] : supervisor.members()) {
    world_.head.note_life(*this, member.incarnation, id, newest_incarnation_);
  }
}

void HeadBox::keep(const KeepStandby& e) {
  if (!host()->acts()) return;
  standby_at_ = e.address;
  if (e.session != 0)
    life_->host.post().tell(life_->head.supervisor(), StandbyKept{e.session, std::nullopt});
}

void HeadBox::ask(const AskStandby& standby) {
  life_->asker.ask(standby.address, "cluster", Incarnation{kept_incarnation_},
                   [this, life = life_](StandbyAnswered answer) {
                     life->host.post().tell(life->head.supervisor(), std::move(answer));
                   });
}

void HeadBox::may_end(const HeadMayEnd& end) {
  if (!host()->alive()) return;
  if (!end.deposed_by.empty()) return life_->host.later({}, [this] { become_follower(); });
  ended_ = true;
  // After what was sent has left.
  world_.loop.after(1ms, [this] { kill(); });
}

}  // namespace troupe::sim
