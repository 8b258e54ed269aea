#include "actors/api/caf.h"

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <map>
#include <mutex>

namespace troupe {
namespace {

/// The generator's requests by its own numbers, shared with their sinks.
struct Requests {
  struct Entry {
    caf::actor_addr listener;
    std::uint64_t request = 0;  ///< the cluster's number; 0 until it is accepted
  };
  std::mutex mutex;
  std::uint64_t last = 0;                  // guarded by mutex
  std::map<std::uint64_t, Entry> running;  // guarded by mutex
};

class ListenerSink : public GenerationSink {
 public:
  ListenerSink(std::shared_ptr<Requests> requests, caf::actor listener, std::uint64_t number)
      : requests_(std::move(requests)), listener_(std::move(listener)), number_(number) {}
  void on_event(GenerationEvent event) override {
    if (event.request_done || event.error) {
      std::lock_guard lock(requests_->mutex);
      requests_->running.erase(number_);
    }
    caf::anon_send(listener_, number_, std::move(event));
  }

 private:
  const std::shared_ptr<Requests> requests_;
  const caf::actor listener_;
  const std::uint64_t number_;
};

caf::error to_caf(const Error& error) {
  return caf::make_error(caf::sec::runtime_error, error.message);
}

Generator::behavior_type generator(Generator::pointer self, Cluster* cluster) {
  // Nobody can use it any more once the cluster ends, even with its handle.
  const auto endings = cluster->endings();
  const std::uint64_t ending = endings->add([me = caf::actor_addr(self->address())] {
    if (const auto alive = caf::actor_cast<caf::strong_actor_ptr>(me))
      caf::anon_send_exit(alive, caf::exit_reason::user_shutdown);
  });
  self->attach_functor([endings, ending] { endings->remove(ending); });
  auto requests = std::make_shared<Requests>();
  const auto cancel_if = [cluster, requests](auto wanted) {
    std::vector<std::uint64_t> found;
    {
      std::lock_guard lock(requests->mutex);
      for (const auto& [number, entry] : requests->running)
        if (entry.request != 0 && wanted(number, entry)) found.push_back(entry.request);
    }
    for (const std::uint64_t request : found) cluster->cancel(request);
  };
  self->set_down_handler([cancel_if](const caf::down_msg& down) {
    cancel_if([&](std::uint64_t, const Requests::Entry& e) { return e.listener == down.source; });
  });
  return {
      [=](const GenerationRequest& request,
          const caf::actor& listener) -> caf::result<std::uint64_t> {
        std::uint64_t number = 0;
        {
          std::lock_guard lock(requests->mutex);
          number = ++requests->last;
          requests->running[number] = {listener.address(), 0};
        }
        const auto accepted = cluster->service().submit(
            request, std::make_shared<ListenerSink>(requests, listener, number));
        std::lock_guard lock(requests->mutex);
        const auto it = requests->running.find(number);
        if (!accepted.ok()) {
          if (it != requests->running.end()) requests->running.erase(it);
          return to_caf(accepted.error());
        }
        if (it != requests->running.end()) {
          it->second.request = accepted->reader;
          self->monitor(listener);
        }
        return number;
      },
      [=](cancel_atom, std::uint64_t wanted) {
        cancel_if([&](std::uint64_t number, const Requests::Entry&) { return number == wanted; });
      },
  };
}

}  // namespace

Generator spawn_generator(Cluster& cluster) {
  // Detached, because accepting a request waits for the Router.
  return cluster.system().spawn<caf::detached>(generator, &cluster);
}

Status subscribe(Cluster& cluster, const caf::actor& listener) {
  return cluster.subscribe(
      [listener](const ClusterEvent& event) { caf::anon_send(listener, event); });
}

}  // namespace troupe
