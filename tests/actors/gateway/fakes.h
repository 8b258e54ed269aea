#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "actors/frontend/named_requests.h"
#include "actors/gateway/gateway_model.h"

namespace troupe::testing {

/// A model whose tokens are the bytes, 256 is BOS, and two are the tags of thoughts.
class ByteModel : public GatewayModel {
 public:
  static constexpr TokenId kOpen = 257, kClose = 258;
  bool tokenizer = true, thinks = false, opens = false;
  ToolStyle tools = ToolStyle::kNone;
  std::shared_future<void> large_go_on;  ///< if set, texts over 100 KB wait for it

  std::string_view served_model_name() const override { return "bytes"; }
  std::uint32_t max_model_len() const override { return 4096; }
  bool has_tokenizer() const override { return tokenizer; }
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      bool add_special_tokens) const override;
  /// Of a chat: of its messages, one behind the other.
  Result<std::vector<TokenId>> prompt_tokens(const GenerationRequest& request) const override;
  Result<std::string> decode(std::span<const TokenId> ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override { return id == 256; }
  ReasoningStyle reasoning_style() const override {
    return thinks ? ReasoningStyle::kThink : ReasoningStyle::kNone;
  }
  /// Thoughts are opened but where "off" is asked for.
  ReasoningStart reasoning(const GenerationRequest& request) const override;
  ToolStyle tool_style() const override { return tools; }
  std::optional<TokenId> added_token_id(std::string_view) const override { return std::nullopt; }
};

class FakeCluster : public ClusterView {
 public:
  std::atomic<bool> is_ready{true};
  std::atomic<std::size_t> padding{0};  ///< spaces behind its state
  std::string status_json() const override {
    return "{\"cluster\":{\"state\":\"ready\"}}" + std::string(padding, ' ');
  }
  std::string refuses() const override { return is_ready ? "" : "The cluster is forming."; }
};

/// A cluster that answers every prompt with the same text, a character a token and a tick, all
/// running requests in step. The log-probability of the i-th token is -0.1f * (i + 1). Requests
/// with a name are kept.
class FakeService : public GenerationService, public NamedRequests {
 public:
  struct Script {
    std::string text = "abcdefghijklmnopqrstuvwxyz";  ///< repeated up to max_tokens
    std::chrono::microseconds tick{0};
    bool hold = false;            ///< accepted, and never answered
    std::optional<Error> refuse;  ///< by submit
    std::size_t refuse_from = 0;  ///< only prompts from this index on
    std::optional<Error> fail;    ///< instead of the token `fail_at`
    std::uint32_t fail_at = 0;
    bool wait_to_fail = false;             ///< until go_on()
    std::optional<std::uint32_t> wait_at;  ///< the token that waits for go_on()
    bool kept = true;                      ///< the acceptance is on storage
    bool stops = false;  ///< a chat at the text's end, whatever max_tokens would allow
  };

  explicit FakeService(const GatewayModel& model) : model_(model), thread_([this] { run(); }) {}
  ~FakeService() override;

  void set(Script script);
  void go_on();
  Result<AcceptedRequest> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override;
  void cancel(std::uint64_t reader) override;
  Result<std::vector<NamedRequest>> find(const std::string& id, std::uint64_t owner) override;
  Result<std::vector<NamedRequest>> find_key(const std::string& key, std::uint64_t owner) override;
  Result<AcceptedRequest> attach(const RequestWanted& wanted,
                                 std::shared_ptr<GenerationSink> sink) override;
  Status forget(const std::string& id, std::uint64_t owner) override;

  /// Puts another form into the names of this request.
  void spoil(const std::string& id, const std::string& form);
  /// Forgets one of its prompts.
  void lose(const std::string& id, std::uint32_t index);
  std::size_t running() const;
  std::size_t cancelled() const;  ///< readers
  std::size_t kept() const;       ///< requests with a name
  std::size_t asked() const;      ///< how often requests were looked for
  std::vector<GenerationRequest> seen() const;
  /// Waits until that many requests run; false after 10 s.
  bool wait_running(std::size_t count) const;
  /// Waits until that many readers wait for more; false after 10 s.
  bool wait_readers(std::size_t count) const;
  /// Waits until that many readers have left; false after 10 s.
  bool wait_cancelled(std::size_t count) const;
  /// Waits until requests were looked for that many times; false after 10 s.
  bool wait_asked(std::size_t count) const;
  /// Waits until a request stands at its `wait_at`; false after 10 s.
  bool wait_waiting() const;

 private:
  struct Reader {
    std::shared_ptr<GenerationSink> sink;
    std::vector<std::uint32_t> from;
    bool begun = false;
  };
  struct Job {
    GenerationRequest request;
    std::vector<TokenId> prompt;
    std::uint32_t step = 0;  ///< so many tokens of each choice are there
    Script script;
    std::map<std::uint64_t, Reader> readers;
    bool ended = false;
    std::optional<Error> error;

    bool ends_itself() const;  ///< a chat that is not cut off
    std::uint32_t length() const;
    bool waits() const;
  };
  void run();
  void advance(Job& job);
  void end(Job& job, std::optional<Error> error);
  /// The reader gets the tokens of this step that it has not.
  void tell(const Job& job, Reader& reader, std::uint32_t step) const;
  void tell_end(const Job& job, Reader& reader) const;
  GenerationEvent event_at(const Job& job, std::uint32_t choice, std::uint32_t step) const;
  AcceptedRequest read(Job& job, std::vector<std::uint32_t> from, bool follow,
                       std::shared_ptr<GenerationSink> sink);
  Job* named(const std::string& id, std::uint64_t owner, std::uint32_t index);

  const GatewayModel& model_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Script script_;
  std::map<std::uint64_t, Job> jobs_;
  std::vector<GenerationRequest> seen_;
  std::vector<std::shared_ptr<GenerationSink>> over_;  // To be released without the lock.
  std::uint64_t next_id_ = 1;
  std::size_t cancelled_ = 0, asked_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::testing
