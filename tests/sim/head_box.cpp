#include "tests/sim/head_box.h"

#include <algorithm>
#include <utility>

#include "tests/sim/fake_model.h"
#include "tests/sim/head_lives.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

// --- The process, whatever it is ----------------------------------------------------------------

HeadBox::HeadBox(World& world, int machine, int partner, bool follows, std::uint64_t seed,
                 Mutation mutation)
    : world_(world),
      machine_(machine),
      partner_(partner),
      journal_(seed, mutation),
      follows_(follows) {}
HeadBox::~HeadBox() = default;

Post& HeadBox::post() { return life_->host.post(); }
Ref<RouterInbox> HeadBox::router_address() const { return life_->head.router(); }

bool HeadBox::alive() const { return life_ || follower_ || asker_; }

void HeadBox::start() {
  if (alive() || ended_) return;
  if (follows_) return follow();
  if (!standby_at_.empty()) return ask_partner();
  lead();
}

void HeadBox::lead() {
  started_ = world_.loop.now();
  lives_.push_back(std::make_unique<Life>(*this, options()));
  life_ = lives_.back().get();
  arrange_death();
  world_.control.serve(life_->host, life_->head.hub());
  world_.head.look();
}

void HeadBox::follow() {
  followers_.push_back(std::make_unique<Follower>(*this));
  follower_ = followers_.back().get();
  arrange_death();
  world_.control.serve(follower_->host, follower_->mail);
}

/// Its term is above those that it asked for.
void HeadBox::take_over() {
  kill();
  follows_ = false;
  kept_incarnation_ = std::max(kept_incarnation_, following_.term.value);
  kept_next_node_ = following_.next_node;
  following_ = {};
  standby_at_.clear();
  known_ = world_.head.other(*this).known_;  // as it was told, line by line
  lead();
}

void HeadBox::become_follower() {
  kill();
  follows_ = true;
  standby_at_.clear();
  following_ = {};
  follow();
}

void HeadBox::ask_partner() {
  if (!asker_) {
    askers_.push_back(std::make_unique<Asker>(*this));
    asker_ = askers_.back().get();
  }
  Asker* const asking = asker_;
  asking->asker.ask(standby_at_, "cluster", {}, [this, asking](StandbyAnswered answer) {
    asking->host.later({}, [this, asking, answer] {
      if (asker_ != asking) return;
      if (answer.rules) return become_follower();
      kill();
      standby_at_.clear();
      lead();
    });
  });
  asking->host.later(1s, [this, asking] {
    if (asker_ == asking) ask_partner();
  });
}

SupervisorOptions HeadBox::options() {
  const Shape& shape = world_.shape();
  SupervisorOptions options;
  options.cluster_id = "cluster";
  options.checkpoint_hash = "hash";
  options.model_path = "/model";
  options.model_name = "model";
  options.host = "head";
  options.pid = 1;
  options.engine.min_devices = shape.min_devices;
  options.engine.max_model_len = 64;
  options.engine.block_size = shape.block_size;
  options.engine.kv_cache_memory = shape.kv_memory;
  options.engine.max_num_seqs = shape.max_seqs;
  options.engine.max_num_batched_tokens = shape.max_batched;
  options.engine.pipeline_parallel_size = shape.pipeline;
  options.engine.tensor_parallel_size = shape.tensor;
  options.engine.data_parallel_size = shape.replicas;
  options.engine.redundant_experts = shape.redundant;
  options.costs = [](Numerics) { return costs(); };
  options.compute = [](Numerics, int, std::int32_t) {
    return ComputeCosts{1, 1, [](std::int32_t, std::int32_t) { return 0u; },
                        [](std::int64_t) { return 0u; }};
  };
  options.random = [this](std::span<std::byte> bytes) {
    for (auto& b : bytes) b = static_cast<std::byte>(world_.loop.draw());
  };
  options.next_node = kept_next_node_;
  options.known = known_;
  options.vocab_size = kVocab;
  // The calendar's clock steps: it may stand before what it showed in the life before.
  kept_incarnation_ = first_incarnation(
      kept_incarnation_, static_cast<std::int64_t>(world_.loop.pick(0, 1'000'000'000'000)));
  if (kept_incarnation_ <= newest_incarnation_)
    world_.broken("A head's life got an old incarnation.");
  newest_incarnation_ = kept_incarnation_;
  options.incarnation = Incarnation{kept_incarnation_};
  if (kept_incarnation_ % 3 == 0) options.keep_for = {};  // the next comes too late for it
  return options;
}

SimHost* HeadBox::host() {
  return life_ ? &life_->host : follower_ ? &follower_->host : asker_ ? &asker_->host : nullptr;
}

void HeadBox::die_at(std::uint64_t act, bool power_cut, Task died) {
  deaths_.push_back({act, power_cut, std::move(died)});
  if (host() && deaths_.size() == 1) arrange_death();
}

void HeadBox::arrange_death() {
  if (deaths_.empty()) return;
  SimHost* const dying = host();
  dying->die_at(deaths_.front().act, [this, dying, death = deaths_.front()] {
    if (!deaths_.empty()) deaths_.pop_front();
    if (host() == dying) kill(death.power_cut);
    death.died();
  });
}

void HeadBox::spare() {
  deaths_.clear();
  if (SimHost* const spared = host()) spared->spare();
}

void HeadBox::kill(bool power_cut) {
  if (!alive()) return;
  host()->kill();
  if (follower_) world_.control.died(follower_->link);
  life_ = nullptr;
  follower_ = nullptr;
  asker_ = nullptr;
  journal_.close(power_cut);
  world_.control.head_died(machine_);
  world_.head.look();
}

void HeadBox::hang() {
  if (life_) life_->host.hang();
  if (follower_) follower_->host.hang();
}

void HeadBox::go_on(bool clock_stood) {
  SimHost* const host = life_ ? &life_->host : follower_ ? &follower_->host : nullptr;
  if (!host || !host->hung()) return;
  if (clock_stood) host->forget_hang();
  host->go_on();
}

const Standby* HeadBox::standby() const {
  return follower_ ? follower_->host.find<Standby, StandbyDouble>(follower_->mail.self.address)
                   : nullptr;
}

const Supervisor* HeadBox::supervisor() const {
  if (!up()) return nullptr;
  return life_->host.find<Supervisor, HeadHands>(life_->head.supervisor().address);
}

const Router* HeadBox::router() const {
  if (!up()) return nullptr;
  return life_->host.find<Router, RouterHands>(life_->head.router().address);
}

void HeadBox::stop(const std::string& reason) {
  if (up()) life_->host.post().tell(life_->head.supervisor(), StopCluster{reason});
}

}  // namespace troupe::sim
