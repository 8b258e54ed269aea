#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tools/troupe/bench/event_stream.h"
#include "tools/troupe/bench/http.h"
#include "tools/troupe/bench/record.h"

namespace troupe::bench {

/// Reads a streamed answer of /v1/completions or /v1/chat/completions into a record.
class AnswerReader : public HttpReceiver {
 public:
  struct Question {
    bool chat = false;
    std::uint64_t prompt_tokens = 0;  ///< 0: the server's word is taken
    std::uint64_t tokens_max = 0;
    TimePoint sent{};
  };
  /// What the run needs besides the record.
  struct Outcome {
    RequestRecord record;
    std::string retry_after;  ///< of a 429 or 503
  };
  /// `then` is called once, at the end; moments in the record are not set.
  AnswerReader(Question question, std::function<void(Outcome)> then);

  Status on_head(const HttpHead& head) override;
  Status on_body(std::string_view bytes, TimePoint at) override;
  void on_end(Status status, TimePoint at) override;

 private:
  Status on_event(std::string_view data);
  void on_token(std::string_view text);
  void settle_counts();
  std::string refusal() const;

  const Question question_;
  std::function<void(Outcome)> then_;
  EventStream events_;
  Outcome outcome_;
  HttpHead head_;
  std::string error_body_;
  TimePoint read_at_{}, last_token_{};
  std::optional<std::uint64_t> told_prompt_, told_output_;
  bool done_ = false, finished_ = false;
};

}  // namespace troupe::bench
