#include "actors/replica/replica_actor.h"

#include <memory>
#include <mutex>

namespace troupe {
namespace {

struct Report {
  std::mutex mutex;
  ReplicaReport latest;  // guarded by mutex
};

class Body : public ActorBody {
 public:
  Body(Post& post, const Address& self, const ReplicaConfig& config, ActorHandle handle,
       std::shared_ptr<Report> report)
      : post_(post),
        self_(self),
        handle_(std::move(handle)),
        report_(std::move(report)),
        machine_(config) {
    publish();
  }

  void on_message(const Envelope& envelope) override {
    Actions actions;
    machine_.on(envelope, now(), actions);
    carry_out(actions);
  }
  void on_wake() override {
    Actions actions;
    machine_.on_wake(now(), actions);
    carry_out(actions);
  }
  void on_peer_down(NodeId node) {
    Actions actions;
    machine_.on_peer_down(node, now(), actions);
    carry_out(actions);
  }

 private:
  void carry_out(Actions& actions) {
    publish();
    for (auto& send : actions.sends) post_.send(self_, std::move(send));
    if (actions.wake) handle_.wake_at(*actions.wake);
  }
  void publish() {
    const ReplicaReport latest = machine_.report();
    std::lock_guard lock(report_->mutex);
    report_->latest = latest;
  }

  Post& post_;
  const Address self_;
  const ActorHandle handle_;
  const std::shared_ptr<Report> report_;
  Replica machine_;
};

}  // namespace

ReplicaActor spawn_replica(caf::actor_system& system, Post& post, const Address& self,
                           const ReplicaConfig& config) {
  auto report = std::make_shared<Report>();
  // The body is made inside of the actor, and lives as long as calls into it are run.
  auto body = std::make_shared<Body*>(nullptr);
  const ActorHandle handle =
      spawn_actor(system, [&post, self, config, report, body](const ActorHandle& own) {
        auto made = std::make_unique<Body>(post, self, config, own, report);
        *body = made.get();
        return made;
      });
  return {handle,
          [report] {
            std::lock_guard lock(report->mutex);
            return report->latest;
          },
          [handle, body](NodeId node) {
            (void)handle.call([body, node] { (*body)->on_peer_down(node); });
          }};
}

}  // namespace troupe
