#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "actors/frontend/named_requests.h"
#include "actors/gateway/answer.h"
#include "actors/gateway/answer_room.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/asker.h"
#include "actors/gateway/found_request.h"
#include "actors/gateway/request_log.h"
#include "actors/gateway/token_counts.h"

namespace troupe {

/// One HTTP request's way through the GenerationService: it submits a request for every prompt, or
/// finds those that were submitted before, collects their events from the Router's thread, and
/// hands them to the connection's thread.
///
///     Router ── on_event ──► [pending, coalesced, bounded] ── take ──► connection's thread
///                   └── wake, once per batch ─────────────────────────────┘
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// `unsent_bytes_max` bounds what a stream may have pending, `room` what others keep, and what an
  /// earlier request has generated; it must live until cancel(). `wake` is called from any thread
  /// when there is news after take() found none; never after cancel() has returned. It must not
  /// call back.
  Exchange(GenerationService& service, NamedRequests& requests, const GatewayModel& model,
           std::size_t unsent_bytes_max, AnswerRoom& room, std::function<void()> wake);

  /// Whether cancel() was called: nobody waits any more.
  bool is_closed();
  /// Whether all of it was accepted before, with this key: then it is answered from there, whatever
  /// would be said to it now, or `error` says why not. Else it is to be submitted.
  bool ask_again(const Asker& asker, std::optional<ApiError>& error);
  /// Either of these, once. On an error nothing is left running that was not there before.
  std::optional<ApiError> submit(ApiRequest request, const Asker& asker);
  /// `from`: a stream of what follows; without it, one object of what is there now.
  std::optional<ApiError> attach(FoundRequest found, std::optional<TokenCounts> from);
  /// By which the request that was submitted is found again.
  const std::string& id() const { return id_; }

  struct News {
    std::string bytes;              ///< of a stream: to be sent; there may be more already
    std::optional<ApiError> error;  ///< the end: nothing is left running
    bool done = false;  ///< all is there: write_piece() can be called; a stream has all its bytes
  };
  News take();
  /// Whether the request is on storage, so that its client may be told of it before there is news.
  /// Waits for the Router.
  bool kept();
  /// A stream's client does not read it: cut it off. `wake` was called for it.
  bool too_slow();
  bool write_piece(std::string& out);
  bool stream() const { return stream_; }
  /// What the log says of it, so far.
  void describe(ServedRequest& served) const;
  /// Ends a stream that has begun.
  std::string stream_error(const ApiError& error) { return answer_->stream_error(error); }

  /// The client went away, or got all. Ends what still runs and detaches `wake`. Any number of
  /// times, from any thread.
  void cancel();

 private:
  class Sink;
  struct Pending {
    std::size_t prompt;
    GenerationEvent event;
  };

  /// What the service reports to: all prompts have a reader, and those whose past is needed a
  /// second one.
  struct Reader {
    std::optional<std::uint64_t> number = {};  // The service's.
    bool ended = false;                        // Its last event came.
    bool whole = false;                        // Of the past: no more of it is wanted.
    bool behind = false;                       // What it has missed is still being told.
  };

  std::optional<ApiError> prepare(const ApiRequest& request, bool replayed);
  std::optional<ApiError> begin(const FoundRequest& found);
  std::optional<ApiError> attach_all(FoundRequest found, bool stream);
  std::shared_ptr<GenerationSink> sink(std::size_t reader);
  std::optional<ApiError> keep(std::size_t reader, const Result<AcceptedRequest>& accepted);
  std::optional<ApiError> attach_past(const FoundRequest& found, const TokenCounts& from);
  void on_event(std::size_t reader, GenerationEvent event);
  void put(std::size_t prompt, GenerationEvent event);
  void put_past(std::size_t prompt, GenerationEvent event);
  bool past_is_whole(std::size_t prompt) const;
  void count_bytes(const GenerationEvent& event);
  void count_caught(std::size_t bytes);
  void end_catching_up();
  void tell_past();
  void wake();

  GenerationService& service_;
  NamedRequests& requests_;
  const GatewayModel& model_;
  const std::size_t unsent_bytes_max_;
  AnswerRoom& room_;
  bool stream_ = false;
  bool keeps_text_ = false;    // A stream whose items are kept to its end.
  bool shows_errors_ = false;  // An error of a prompt is a part of the answer.
  std::size_t past_alternatives_ = 0;  // Of each token that the client has: they are told again.
  std::string id_;
  std::uint64_t owner_ = 0;
  // Of the connection's thread, once submitted.
  std::unique_ptr<Answer> answer_;
  std::deque<Pending> taken_;   // News that the answer has not been told yet.
  std::size_t told_bytes_ = 0;  // Of pending_bytes_: told since the last take().

  std::mutex mutex_;  // Guards all below.
  std::function<void()> wake_;
  bool woken_ = false;
  bool closed_ = false;
  bool too_slow_ = false;
  std::vector<Pending> pending_;
  std::vector<std::ptrdiff_t>
      pending_of_;                 // By choice, prompt-major: its place in pending_, or -1.
  std::size_t pending_bytes_ = 0;  // Of pending_ and taken_.
  std::size_t kept_bytes_ = 0;     // Of room_.
  /// What an earlier request has generated comes at once, and says nothing of how its client
  /// reads: until that is sent, a stream counts in room_ and is bounded by it.
  bool catching_up_ = false;
  std::size_t caught_bytes_ = 0;  // Of kept_bytes_.
  std::vector<bool> begun_;       // By choice, while catching up: news came.
  std::uint32_t n_ = 1;
  std::size_t prompts_ = 0;
  std::vector<Reader> readers_;        // By prompt; then, of the past, by prompt.
  std::vector<GenerationEvent> past_;  // By choice; none: it is told, or not needed.
  TokenCounts past_wanted_;            // By choice: tokens of the past that are to come.
  std::size_t pasts_open_ = 0;
};

}  // namespace troupe
