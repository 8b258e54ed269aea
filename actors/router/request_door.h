#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "actors/base/post.h"
#include "actors/frontend/generation_service.h"
#include "actors/frontend/model_frontend.h"
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
///      └────── sink ◄── deliver(number) ◄── accepted(ticket, number)
class RequestDoor : public GenerationService, public RequestDesk {
 public:
  using Accepted = std::function<void(Result<std::uint64_t>)>;
  struct Options {
    std::shared_ptr<const ModelFrontend> frontend;
    Metrics* metrics = nullptr;  ///< may be null
    std::function<std::uint64_t()> random_seed;
  };
  /// `post` and the metrics must outlive it.
  RequestDoor(Post& post, Ref<RouterInbox> router, Options options);
  /// The Router must have ended. As close().
  ~RequestDoor() override;

  Result<std::uint64_t> submit(GenerationRequest request,
                               std::shared_ptr<GenerationSink> sink) override;
  /// As submit, without waiting for the Router: `accepted` is called once, before any event, from
  /// the Router's actor or from within this call. For callers that must not block.
  void submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                    Accepted accepted);
  void cancel(std::uint64_t request) override;
  /// Sinks of unfinished requests get a kCancelled error, and nothing is accepted any more.
  void close();

  RequestCounts counts() const;  ///< the newest
  RequestRates rates() const;    ///< of the last ten seconds
  /// The oldest requests that are not over. The tokens of one that pauses may be 100 ms old.
  std::vector<RequestSummary> list() const;
  const ModelFrontend& frontend() const { return *options_.frontend; }

  // RequestDesk: inside the Router's turns.
  void accepted(RequestAccepted accepted) override;
  void deliver(DeliverEvent delivery) override;
  void observe(const RequestObservation& observation) override;
  void changed(const Router& router) override;

 private:
  struct Pending {
    std::shared_ptr<GenerationSink> sink;
    Accepted accepted;
    std::uint64_t prompt_tokens = 0;
  };
  struct Client {
    std::shared_ptr<GenerationSink> sink;
    FinishedRequest totals;
  };
  Status keep(std::uint64_t& ticket, Pending& pending);

  Post& post_;
  const Ref<RouterInbox> router_;
  const Options options_;

  mutable std::mutex mutex_;  // never held while a sink or an `accepted` is called
  bool closed_ = false;
  std::uint64_t last_ticket_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by ticket
  std::unordered_map<std::uint64_t, Client> clients_;   // by request
  RequestCounts counts_;
  std::vector<RequestSummary> list_;
  TimePoint list_due_{};  // when the list may be made again although the counts are the same
  RequestWindow window_;
};

}  // namespace troupe
