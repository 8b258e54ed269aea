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
#include "actors/gateway/answer.h"
#include "actors/gateway/answer_room.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"

namespace troupe {

/// One HTTP request's way through the GenerationService: it submits a request for every prompt,
/// collects their events from the Router's thread, and hands them to the connection's thread.
///
///     Router ── on_event ──► [pending, coalesced, bounded] ── take ──► connection's thread
///                   └── wake, once per batch ─────────────────────────────┘
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// `unsent_bytes_max` bounds what a stream may have pending, `room` what others keep; it must
  /// live until cancel(). `wake` is called from any thread when there is news after take() found
  /// none; never after cancel() has returned. It must not call back.
  Exchange(GenerationService& service, const GatewayModel& model, std::size_t unsent_bytes_max,
           AnswerRoom& room, std::function<void()> wake);

  /// Once. On an error nothing is left running.
  std::optional<ApiError> submit(ApiRequest request);

  struct News {
    std::string bytes;              ///< of a stream: to be sent; there may be more already
    std::optional<ApiError> error;  ///< the end: nothing is left running
    bool done = false;  ///< all is there: write_piece() can be called; a stream has all its bytes
  };
  News take();
  /// A stream's client does not read it: cut it off. `wake` was called for it.
  bool too_slow();
  bool write_piece(std::string& out) { return answer_->write_piece(out); }
  bool stream() const { return stream_; }

  /// The client went away, or got all. Ends what still runs and detaches `wake`. Any number of
  /// times, from any thread.
  void cancel();

 private:
  class Sink;
  struct Pending {
    std::size_t prompt;
    GenerationEvent event;
  };

  std::optional<ApiError> reserve(const ApiRequest& request);
  void on_event(std::size_t prompt, GenerationEvent event);
  void put(std::size_t prompt, GenerationEvent event);

  GenerationService& service_;
  const GatewayModel& model_;
  const std::size_t unsent_bytes_max_;
  AnswerRoom& room_;
  bool stream_ = false;
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
  std::uint32_t n_ = 1;
  std::vector<std::optional<std::uint64_t>> running_;  // By prompt: the service's id.
  std::vector<bool> ended_;                            // By prompt: its last event came.
};

}  // namespace troupe
