#include "actors/base/caf_host.h"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>

#include "actors/base/caf_types.h"
#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// What CAF sees of every actor. What its inbox takes, the machine's overloads say at compile time
/// (actors/base/shell.h): CAF only moves mail.
using Seat = caf::typed_actor<caf::reacts_to<Mail>,                       // a message
                              caf::reacts_to<wake_atom, std::uint64_t>,   // the alarm rings
                              caf::reacts_to<start_atom>,                 // there is nothing else
                              caf::reacts_to<end_atom>>;                  // no message follows

class CafMailbox final : public Mailbox {
 public:
  void end() override { caf::anon_send(seat, end_atom_v); }
  void took() { taken(); }

  Seat seat;  // set before anything is put in

 private:
  void enqueue(Mail mail) override { caf::anon_send(seat, std::move(mail)); }
};

struct SeatState {
  static inline const char* name = "troupe";
  std::unique_ptr<Actor> actor;
  Alarm alarm;
};

void arrange(Seat::stateful_pointer<SeatState> self, std::optional<TimePoint> wake) {
  if (!wake) return;
  if (const auto number = self->state.alarm.set(*wake))
    self->delayed_send(self, std::max(Duration::zero(), *wake - now()), wake_atom_v, *number);
}

Seat::behavior_type seat(Seat::stateful_pointer<SeatState> self,
                         const std::shared_ptr<CafMailbox>& mailbox, const Host::Make& make,
                         const Life& life) {
  self->set_exception_handler([](std::exception_ptr&) -> caf::error { std::terminate(); });
  // This runs before the first message is taken, whichever that is.
  self->state.actor = make(life);
  arrange(self, self->state.actor->on_wake());
  return {
      [](start_atom) {},
      [self, mailbox](Mail& mail) {
        mailbox->took();
        arrange(self, self->state.actor->on(std::move(mail)));
      },
      [self](wake_atom, std::uint64_t number) {
        if (self->state.alarm.rings(number))
          arrange(self, self->state.actor->on_wake());
      },
      [self](end_atom) {
        self->state.actor.reset();  // what it holds goes before its end is told
        self->quit();
      },
  };
}

/// Takes the life of each new actor, and lets it go when CAF says that the actor is down.
using Watcher = caf::typed_actor<caf::reacts_to<caf::strong_actor_ptr, Life>>;

class WatcherActor final : public Watcher::base {
 public:
  explicit WatcherActor(caf::actor_config& config) : Watcher::base(config) {
    set_down_handler([this](const caf::down_msg& down) { lives_.erase(down.source); });
  }
  const char* name() const override { return "watcher"; }
  Watcher::behavior_type make_behavior() override {
    return {[this](const caf::strong_actor_ptr& actor, const Life& life) {
      lives_.emplace(actor->address(), life);
      monitor(actor->address());
    }};
  }
  void on_exit() override { lives_.clear(); }

 private:
  std::map<caf::actor_addr, Life> lives_;
};

}  // namespace

struct CafHost::Monitor {
  Watcher watcher;
  /// Recursive: telling of an end may let go of another actor's life.
  std::recursive_mutex mutex;
  std::condition_variable_any changed;
  std::map<Address, int> alive;  // guarded by mutex; a new life of an address may begin early
  bool closed = false;           // guarded by mutex: host and post are gone
};

CafHost::CafHost(caf::actor_system& system, Post& post)
    : Host(post), system_(system), monitor_(std::make_shared<Monitor>()) {
  monitor_->watcher = system.spawn<WatcherActor>();
}

CafHost::~CafHost() {
  std::vector<Address> left;
  {
    std::lock_guard lock(monitor_->mutex);
    for (const auto& [address, count] : monitor_->alive) left.push_back(address);
  }
  for (const auto& address : left) end(address);
  for (const auto& address : left) {
    if (!wait_ended(address, limits::kActorStopDeadline))
      logger().error("{} does not end", to_string(address));
  }
  {
    std::lock_guard lock(monitor_->mutex);
    monitor_->closed = true;
  }
  caf::anon_send_exit(monitor_->watcher, caf::exit_reason::user_shutdown);
}

TimePoint CafHost::now() const { return troupe::now(); }

void CafHost::spawn(const Address& address, const Make& make, Mail ended) {
  {
    std::lock_guard lock(monitor_->mutex);
    ++monitor_->alive[address];
  }
  // A job that did not end in time may let go of it after the host has gone.
  const Life life(nullptr, [monitor = monitor_, &post = post(), address,
                            ended = std::move(ended)](const void*) {
    std::lock_guard lock(monitor->mutex);
    if (monitor->closed) return;
    if (ended.local) post.tell(ended);
    const auto it = monitor->alive.find(address);
    if (--it->second == 0) monitor->alive.erase(it);
    monitor->changed.notify_all();
  });
  auto mailbox = std::make_shared<CafMailbox>();
  mailbox->seat = system_.spawn<caf::lazy_init>(seat, mailbox, make, life);
  caf::anon_send(monitor_->watcher, caf::actor_cast<caf::strong_actor_ptr>(mailbox->seat), life);
  post().attach(address, mailbox);
  caf::anon_send(mailbox->seat, start_atom_v);
}

void CafHost::end(const Address& address) {
  if (const auto mailbox = post().detach(address)) mailbox->end();
}

bool CafHost::wait_ended(const Address& address, Duration deadline) {
  std::unique_lock lock(monitor_->mutex);
  return monitor_->changed.wait_for(lock, deadline,
                                    [&] { return !monitor_->alive.contains(address); });
}

bool CafHost::checks_invariants() const {
#ifdef TROUPE_CHECKS_INVARIANTS
  return true;
#else
  return false;
#endif
}

void CafHost::broken(const Address& actor, const std::string& invariant) {
  logger().critical("{}: {}", to_string(actor), invariant);
  std::abort();
}

}  // namespace troupe
