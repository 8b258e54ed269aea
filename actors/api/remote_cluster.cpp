#include <future>
#include <map>
#include <mutex>

#include "actors/api/client_session.h"
#include "actors/api/cluster.h"
#include "actors/api/operation.h"
#include "actors/control/caf_system.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// A running cluster, as a client of its head.
class RemoteCluster : public Cluster, private GenerationService {
 public:
  Status open(const std::string& join_file, Duration deadline) {
    auto caf = CafSystem::make();
    if (!caf.ok()) return caf.error();
    caf_ = std::move(*caf);
    join_file_ = join_file;
    deadline_ = deadline;
    auto session = ClientSession::open(caf_->system(), join_file, "embedded client", deadline,
                                       {[this](const Message& message) { on_message(message); },
                                        [this](const std::string& reason) { on_down(reason); }});
    if (!session.ok()) return session.error();
    session_ = std::move(*session);
    return {};
  }
  ~RemoteCluster() override {
    endings()->run();
    if (!session_) return;
    // Later sends fail; what is not over is told so.
    session_->close();
    end_all(cancelled("The connection to the cluster was closed."));
  }

  Result<std::string> status_json() override {
    auto promise = std::make_shared<StatusPromise>();
    auto future = promise->get_future();
    const std::uint64_t query = next_query();
    {
      std::lock_guard lock(mutex_);
      status_queries_[query] = promise;
    }
    const Status sent = session_->send(StatusQuery{query});
    if (sent.ok() && future.wait_for(limits::kRouterAnswerDeadline) == std::future_status::ready)
      return future.get();
    std::lock_guard lock(mutex_);
    status_queries_.erase(query);
    if (!sent.ok()) return sent.error();
    return deadline_exceeded("The head did not answer in time.");
  }

  Status subscribe(std::function<void(const ClusterEvent&)> listener) override {
    {
      std::lock_guard lock(mutex_);
      listeners_.push_back(std::move(listener));
    }
    return session_->send(Subscribe{});
  }

  GenerationService& service() override { return *this; }
  caf::actor_system& system() override { return caf_->system(); }

 private:
  using StatusPromise = std::promise<Result<std::string>>;

  Result<AcceptedRequest> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override {
    const std::uint64_t query = next_query();
    {
      std::lock_guard lock(mutex_);
      sinks_[query] = std::move(sink);
    }
    const Status sent = session_->send(ClientGenerate{query, std::move(request)});
    if (sent.ok()) return AcceptedRequest{query, nullptr};
    std::lock_guard lock(mutex_);
    // If the session ended meanwhile, the sink was told.
    if (sinks_.erase(query) == 0) return AcceptedRequest{query, nullptr};
    return sent.error();
  }
  void cancel(std::uint64_t request) override { (void)session_->send(ClientCancel{request}); }

  Result<std::string> operate(
      const std::function<Status(ClientSession&)>& ask,
      const std::function<void(const OperationProgress&)>& on_progress) override {
    return follow_operation(
        [&](ClientSession::Events events) {
          return ClientSession::open(caf_->system(), join_file_, "embedded client", deadline_,
                                     std::move(events));
        },
        ask, on_progress);
  }

  std::uint64_t next_query() {
    std::lock_guard lock(mutex_);
    return ++last_query_;
  }

  void on_message(const Message& message) {
    if (const auto* generation = std::get_if<ClientGeneration>(&message)) {
      std::lock_guard one_at_a_time(delivering_);
      std::shared_ptr<GenerationSink> sink;
      {
        std::lock_guard lock(mutex_);
        const auto it = sinks_.find(generation->query);
        if (it == sinks_.end()) return;
        sink = it->second;
        if (generation->event.request_done || generation->event.error) sinks_.erase(it);
      }
      sink->on_event(generation->event);
    } else if (const auto* reply = std::get_if<StatusReply>(&message)) {
      std::lock_guard lock(mutex_);
      const auto it = status_queries_.find(reply->query);
      if (it == status_queries_.end()) return;
      it->second->set_value(reply->json);
      status_queries_.erase(it);
    } else if (const auto* news = std::get_if<ClusterNews>(&message)) {
      std::vector<std::function<void(const ClusterEvent&)>> listeners;
      {
        std::lock_guard lock(mutex_);
        listeners = listeners_;
      }
      for (const auto& listener : listeners) listener(news->event);
    }
  }

  void on_down(const std::string& reason) {
    end_all(unavailable("The connection to the head was lost: " + reason));
  }

  /// Every question that is not answered ends here: nothing hangs.
  void end_all(const Error& why) {
    std::map<std::uint64_t, std::shared_ptr<GenerationSink>> sinks;
    std::map<std::uint64_t, std::shared_ptr<StatusPromise>> queries;
    {
      std::lock_guard lock(mutex_);
      sinks.swap(sinks_);
      queries.swap(status_queries_);
    }
    for (const auto& [query, promise] : queries) promise->set_value(why);
    std::lock_guard one_at_a_time(delivering_);
    for (const auto& [query, sink] : sinks) {
      GenerationEvent event;
      event.error = why;
      sink->on_event(std::move(event));
    }
  }

  std::unique_ptr<CafSystem> caf_;
  std::string join_file_;
  Duration deadline_{};    // for a session to be open
  std::mutex delivering_;  // held while a sink is called; taken before mutex_
  std::mutex mutex_;
  std::uint64_t last_query_ = 0;                                            // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<GenerationSink>> sinks_;          // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<StatusPromise>> status_queries_;  // guarded by mutex_
  std::vector<std::function<void(const ClusterEvent&)>> listeners_;         // guarded by mutex_
  std::unique_ptr<ClientSession> session_;
};

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::connect(const std::string& join_file, Duration deadline) {
  auto cluster = std::make_unique<RemoteCluster>();
  if (const Status opened = cluster->open(join_file, deadline); !opened.ok()) return opened.error();
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace troupe
