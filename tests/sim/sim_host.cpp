#include "tests/sim/sim_host.h"

#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

/// From one hand to the next within a process.
constexpr Duration kMailboxDelay = std::chrono::microseconds(1);

}  // namespace

/// A mailbox with what is behind it.
class SimMailbox final : public Mailbox, public std::enable_shared_from_this<SimMailbox> {
 public:
  explicit SimMailbox(SimHost& host) : host_(host) {}

  void begin(const Host::Make& make, const Life& life) {
    host_.later(kMailboxDelay, [self = shared_from_this(), make, life] {
      self->life_ = life;
      self->actor_ = make(life);
      self->arrange(self->actor_->on_wake());
    });
  }
  void end() override {
    host_.later(kMailboxDelay, [self = shared_from_this()] { self->clear(); });
  }
  /// What the actor holds goes before its end is told.
  void clear() {
    actor_.reset();
    life_.reset();
  }
  const Actor* actor() const { return actor_.get(); }

 private:
  void enqueue(Mail mail) override {
    host_.later(kMailboxDelay, [self = shared_from_this(), mail = std::move(mail)]() mutable {
      self->take(std::move(mail));
    });
  }
  void take(Mail mail) {
    taken();
    if (!actor_) return;
    if (mail.envelope.message) host_.world().steps.see(mail.envelope);
    arrange(actor_->on(std::move(mail)));
  }
  void arrange(std::optional<TimePoint> wake) {
    if (!wake) return;
    const auto number = alarm_.set(*wake);
    if (!number) return;
    host_.later(*wake - host_.now(), [self = shared_from_this(), number = *number] {
      if (self->actor_ && self->alarm_.rings(number)) self->arrange(self->actor_->on_wake());
    });
  }

  SimHost& host_;
  std::unique_ptr<Actor> actor_;
  Life life_;
  Alarm alarm_;
};

SimHost::SimHost(World& world, int machine)
    : Host(own_post),
      world_(world),
      loop_(world.loop),
      machine_(machine),
      clock_offset_(world.loop.pick_ms(0, 1'000'000)) {}

SimHost::~SimHost() { clear(); }

void SimHost::spawn(const Address& address, const Make& make, Mail ended) {
  if (!alive_) return;
  const auto mailbox = std::make_shared<SimMailbox>(*this);
  mailbox->begin(make, make_life(post(), std::move(ended)));
  actors_[address] = mailbox;
  post().attach(address, mailbox);
}

void SimHost::end(const Address& address) {
  actors_.erase(address);
  if (const auto mailbox = post().detach(address)) mailbox->end();
}

bool SimHost::checks_invariants() const { return world_.checks; }

void SimHost::broken(const Address& actor, const std::string& invariant) {
  world_.broken("An invariant of " + to_string(actor) + " does not hold: " + invariant);
}

void SimHost::run(Task task) {
  if (!alive_) return;
  if (hung_)
    held_.push_back(std::move(task));
  else
    task();
}

void SimHost::later(Duration delay, Task task) {
  if (!alive_) return;
  loop_.after(delay, [this, task = std::move(task)]() mutable { run(std::move(task)); });
}

void SimHost::go_on() {
  hung_ = false;
  for (Task& task : std::exchange(held_, {})) run(std::move(task));
}

void SimHost::kill() { alive_ = hung_ = false; }

bool SimHost::acts() {
  if (!alive_) return false;
  if (++acted_ != dies_at_) return true;
  kill();
  loop_.after({}, std::move(died_));
  return false;
}

void SimHost::die_at(std::uint64_t act, Task died) {
  dies_at_ = acted_ + act;
  died_ = std::move(died);
}

void SimHost::clear() {
  kill();
  for (auto& [address, mailbox] : std::exchange(actors_, {})) {
    post().detach(address);
    mailbox->clear();
  }
  held_.clear();
}

const Actor* SimHost::actor_at(const Address& address) const {
  const auto it = actors_.find(address);
  return it == actors_.end() ? nullptr : it->second->actor();
}

}  // namespace troupe::sim
