#include "actors/company/actor_shell.h"

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

#include "actors/company/caf_types.h"
#include "runtime/limits.h"

namespace troupe {

struct ActorHandle::Shared {
  caf::actor actor;
  std::atomic<std::size_t> waiting{0};  // messages in the mailbox

  std::mutex mutex;
  std::condition_variable ended_changed;
  bool ended = false;  // guarded by mutex

  // Touched from inside the actor only.
  caf::event_based_actor* self = nullptr;
  std::optional<TimePoint> wake;
  std::uint64_t generation = 0;

  template <class T>
  Status enqueue(T&& content) {
    if (waiting.fetch_add(1, std::memory_order_relaxed) >= limits::kMailboxMax) {
      waiting.fetch_sub(1, std::memory_order_relaxed);
      return resource_exhausted("An actor's mailbox is full; its node is overloaded.");
    }
    caf::anon_send(actor, std::forward<T>(content));
    return {};
  }
};

namespace {

struct ShellState {
  static inline const char* name = "troupe";
  std::unique_ptr<ActorBody> body;
};

}  // namespace

/// The one CAF behaviour of the company: it moves messages into a body, and wakes it.
struct ActorShell {
  using Self = caf::stateful_actor<ShellState>;
  using MakeBody = std::function<std::unique_ptr<ActorBody>(const ActorHandle&)>;

  static caf::behavior run(Self* self, std::shared_ptr<ActorHandle::Shared> shared,
                           const MakeBody& make_body) {
    shared->self = self;
    ActorHandle handle;
    handle.shared_ = shared;
    self->attach_functor([shared] {
      std::lock_guard lock(shared->mutex);
      shared->ended = true;
      shared->ended_changed.notify_all();
    });
    self->set_exit_handler([self](caf::exit_msg& m) { self->quit(m.reason); });
    self->set_exception_handler([](std::exception_ptr&) -> caf::error { std::terminate(); });
    self->state.body = make_body(handle);
    auto* body = self->state.body.get();
    return {
        [body, shared](const Envelope& envelope) {
          shared->waiting.fetch_sub(1, std::memory_order_relaxed);
          body->on_message(envelope);
        },
        [shared](const ActorCall& call) {
          shared->waiting.fetch_sub(1, std::memory_order_relaxed);
          call();
        },
        [body, shared](wake_atom, std::uint64_t generation) {
          if (generation != shared->generation) return;  // a later request replaced it
          shared->wake.reset();
          body->on_wake();
        },
    };
  }

  static ActorHandle spawn(caf::actor_system& system, const MakeBody& make_body) {
    auto shared = std::make_shared<ActorHandle::Shared>();
    ActorHandle handle;
    handle.shared_ = shared;
    shared->actor = system.spawn<caf::lazy_init>(run, shared, make_body);
    // The first message starts the lazily made actor, after `shared->actor` is set.
    caf::anon_send(shared->actor, wake_atom_v, ~std::uint64_t{0});
    return handle;
  }
};

Status ActorHandle::deliver(Envelope envelope) const {
  if (!shared_) return unavailable("The actor has not been started.");
  return shared_->enqueue(std::move(envelope));
}

Status ActorHandle::call(std::function<void()> call) const {
  if (!shared_) return unavailable("The actor has not been started.");
  return shared_->enqueue(ActorCall(std::move(call)));
}

void ActorHandle::wake_at(TimePoint time) const {
  auto& s = *shared_;
  if (s.wake && *s.wake <= time) return;
  s.wake = time;
  const auto delay = std::max(Duration::zero(), time - now());
  s.self->delayed_send(s.self, delay, wake_atom_v, ++s.generation);
}

void ActorHandle::stop() const {
  if (shared_) caf::anon_send(shared_->actor, caf::exit_msg{{}, caf::exit_reason::user_shutdown});
}

bool ActorHandle::stop_and_wait(Duration deadline) const {
  if (!shared_) return true;
  stop();
  std::unique_lock lock(shared_->mutex);
  return shared_->ended_changed.wait_for(lock, deadline, [&] { return shared_->ended; });
}

namespace {

class CallbackBody : public ActorBody {
 public:
  CallbackBody(std::function<void(const Envelope&)> on_message, std::function<void()> on_wake)
      : on_message_(std::move(on_message)), on_wake_(std::move(on_wake)) {}
  void on_message(const Envelope& envelope) override { on_message_(envelope); }
  void on_wake() override { on_wake_(); }

 private:
  std::function<void(const Envelope&)> on_message_;
  std::function<void()> on_wake_;
};

}  // namespace

std::unique_ptr<ActorBody> make_body(std::function<void(const Envelope&)> on_message,
                                     std::function<void()> on_wake) {
  return std::make_unique<CallbackBody>(std::move(on_message), std::move(on_wake));
}

ActorHandle spawn_actor(caf::actor_system& system,
                        std::function<std::unique_ptr<ActorBody>(const ActorHandle&)> make_body) {
  return ActorShell::spawn(system, std::move(make_body));
}

}  // namespace troupe
