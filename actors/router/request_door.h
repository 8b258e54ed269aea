#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/base/post.h"
#include "actors/frontend/generation_service.h"
#include "actors/frontend/model_frontend.h"
#include "actors/frontend/named_requests.h"
#include "actors/metrics/metrics.h"
#include "actors/metrics/request_window.h"
#include "actors/router/request_desk.h"
#include "actors/router/router.h"

namespace troupe {

/// The doors' way to the Router: prepares requests in the caller's thread, and brings the Router's
/// events to their sinks. Thread-safe.
///
///     door ── submit ──► prepare ── SubmitRequest(ticket) ──► Router ──► Replica
///      ▲                                                        │
///      └────── sink ◄── deliver(tickets) ◄── accepted(ticket, number)
///
/// A ticket is the number of a reader: who asked for a request, or asks for it again.
class RequestDoor : public GenerationService, public NamedRequests, public RequestDesk {
 public:
  using Accepted = std::function<void(Result<AcceptedRequest>)>;
  struct Options {
    std::shared_ptr<const ModelFrontend> frontend;
    Metrics* metrics = nullptr;  ///< may be null
    std::function<std::uint64_t()> random_seed;
  };
  /// `post` and the metrics must outlive it.
  RequestDoor(Post& post, Ref<RouterInbox> router, Options options);
  /// The Router must have ended. As close().
  ~RequestDoor() override;

  Result<AcceptedRequest> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override;
  /// As submit, without waiting for the Router: `accepted` is called once, before any event, from
  /// the Router's actor or from within this call. For callers that must not block.
  void submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                    Accepted accepted);
  void cancel(std::uint64_t reader) override;
  // NamedRequests
  Result<std::vector<NamedRequest>> find(const std::string& id, std::uint64_t owner) override;
  Result<std::vector<NamedRequest>> find_key(const std::string& key, std::uint64_t owner) override;
  Result<AcceptedRequest> attach(const RequestWanted& wanted,
                                 std::shared_ptr<GenerationSink> sink) override;
  Status forget(const std::string& id, std::uint64_t owner) override;
  /// Sinks of unfinished requests get a kCancelled error, and nothing is accepted any more.
  void close();
  /// As if this process had died: sinks hear nothing more, the Router hears of no cancel, and who
  /// waits for it gets kUnavailable.
  void fall_silent();

  RequestCounts counts() const;  ///< the newest
  RequestRates rates() const;    ///< of the last ten seconds
  std::string trouble() const;   ///< as Router::trouble()
  /// The oldest requests that are not over. The tokens of one that pauses may be 100 ms old.
  std::vector<RequestSummary> list() const;
  const ModelFrontend& frontend() const { return *options_.frontend; }

  // RequestDesk: inside the Router's turns.
  void accepted(RequestAccepted accepted) override;
  void deliver(DeliverEvent delivery) override;
  void found(RequestsFound found) override;
  void observe(const RequestObservation& observation) override;
  void changed(const Router& router) override;

 private:
  struct Pending {
    std::shared_ptr<GenerationSink> sink;
    Accepted accepted;
  };
  struct Reader {
    std::shared_ptr<GenerationSink> sink;
    std::uint64_t request = 0;
  };
  using Found = std::promise<Result<std::vector<NamedRequest>>>;
  using Readers = std::unordered_map<std::uint64_t, Reader>;
  Readers close(const Error& why);
  Status keep(std::uint64_t& ticket, Pending& pending);
  /// Sends what `ask` does, and waits for the answer.
  Result<AcceptedRequest> wait_accepted(const std::function<void(Accepted)>& ask);
  Result<std::vector<NamedRequest>> ask_for(FindRequests wanted);
  void count(const DeliverEvent& delivery);

  Post& post_;
  const Ref<RouterInbox> router_;
  const Options options_;

  mutable std::mutex mutex_;  // never held while a sink or an `accepted` is called
  std::optional<Error> closed_;  // why
  std::uint64_t last_ticket_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by ticket
  Readers readers_;                                     // by ticket
  std::unordered_map<std::uint64_t, FinishedRequest> totals_;   // by request
  std::unordered_map<std::uint64_t, std::shared_ptr<Found>> questions_;  // by ticket
  RequestCounts counts_;
  std::string trouble_;
  std::vector<RequestSummary> list_;
  TimePoint list_due_{};  // when the list may be made again although the counts are the same
  RequestWindow window_;
};

}  // namespace troupe
