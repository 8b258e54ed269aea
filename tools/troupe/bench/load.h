#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "tools/troupe/bench/answer_reader.h"
#include "tools/troupe/bench/http.h"
#include "tools/troupe/bench/prompts.h"
#include "tools/troupe/bench/record.h"

namespace troupe::bench {

/// What is asked of the server, and when.
struct LoadOptions {
  bool chat = false;
  std::string fields;  ///< members of every request's JSON, without the braces
  std::uint64_t requests = 1000;
  double rate = 0;  ///< requests a second; may be infinite
  double burstiness = 1;
  std::uint64_t max_concurrency = 0;  ///< 0: no bound
  std::uint64_t seed = 0;
  Duration timeout = std::chrono::seconds(600);
  int max_retries = 0;      ///< of a request that got 429 or 503
  std::uint64_t turns = 1;  ///< of each conversation; each is a request
  double think_s = 0;       ///< mean pause before a later turn

  /// Conversations, and so most requests that can be under way at one time.
  std::uint64_t streams_max() const { return (requests + turns - 1) / turns; }
};

/// Sends requests as they arrive and keeps what comes of each.
///
///     arrivals -> waiting (for --max-concurrency) -> sent -> record -> the session's next turn
///
/// Moves only on the client's loop.
class Load {
 public:
  Load(HttpClient& client, const LoadOptions& options, const PromptSource& prompts);

  /// Called after each end of a request.
  std::function<void()> on_progress;
  /// Called once, when every request has ended; not if the client was stopped.
  std::function<void()> on_over;

  /// Begins; the client's loop does the rest.
  void start();
  TimePoint begun() const { return begun_; }

  const std::vector<RequestRecord>& records() const { return records_; }
  std::uint64_t ended() const { return ended_; }
  std::uint64_t failed() const { return failed_; }
  /// From the first arrival to the last end, or until now.
  double duration_s() const;

 private:
  void schedule_arrival(std::size_t session);
  void arrive(std::size_t number, TimePoint due);
  void send_waiting();
  void send(std::size_t number);
  std::string body_of(std::size_t number);
  void on_outcome(std::size_t number, AnswerReader::Outcome outcome);
  /// Whether it is sent again later.
  bool retry(std::size_t number, const AnswerReader::Outcome& outcome);
  void go_on(std::size_t number);
  double since_begun(TimePoint at) const;
  TimePoint first_sent(std::size_t number) const;

  struct Said {
    std::string question, answer;
  };

  HttpClient& client_;
  const LoadOptions options_;
  const PromptSource& prompts_;
  TimePoint begun_{}, over_{};
  std::vector<double> arrivals_s_;  // of each session's first turn
  std::deque<std::size_t> waiting_;
  std::vector<std::vector<Said>> sessions_;  // what was said in those that go on
  std::vector<RequestRecord> records_;
  std::uint64_t running_ = 0, ended_ = 0, failed_ = 0;
};

}  // namespace troupe::bench
