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
#include "actors/gateway/gateway_model.h"

namespace troupe::testing {

/// A model whose tokens are the bytes, 256 is BOS.
class ByteModel : public GatewayModel {
 public:
  bool tokenizer = true, thinks = false, opens = false;
  std::shared_future<void> large_go_on;  ///< if set, texts over 100 KB wait for it

  std::string_view served_model_name() const override { return "bytes"; }
  std::uint32_t max_model_len() const override { return 4096; }
  bool has_tokenizer() const override { return tokenizer; }
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      bool add_special_tokens) const override;
  Result<std::string> decode(std::span<const TokenId> ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override { return id == 256; }
  ReasoningStart reasoning(std::string_view template_kwargs) const override {
    const bool off = template_kwargs.find("false") != std::string_view::npos;
    return {thinks ? ReasoningStyle::kThink : ReasoningStyle::kNone, opens && !off};
  }
};

class FakeCluster : public ClusterView {
 public:
  std::atomic<bool> is_ready{true};
  std::string status_json() const override { return "{\"cluster\":{\"state\":\"ready\"}}"; }
  bool ready() const override { return is_ready; }
  std::string state() const override { return is_ready ? "ready" : "forming"; }
};

/// A cluster that answers every prompt with the same text, a character a token and a tick, all
/// running requests in step. The log-probability of the i-th token is -0.1f * (i + 1).
class FakeService : public GenerationService {
 public:
  struct Script {
    std::string text = "abcdefghijklmnopqrstuvwxyz";  ///< repeated up to max_tokens
    std::chrono::microseconds tick{0};
    bool hold = false;            ///< accepted, and never answered
    std::optional<Error> refuse;  ///< by submit
    std::optional<Error> fail;    ///< instead of the token `fail_at`
    std::uint32_t fail_at = 0;
    bool wait_to_fail = false;  ///< until go_on()
  };

  explicit FakeService(const GatewayModel& model) : model_(model), thread_([this] { run(); }) {}
  ~FakeService() override;

  void set(Script script);
  void go_on();
  Result<std::uint64_t> submit(GenerationRequest request,
                               std::shared_ptr<GenerationSink> sink) override;
  void cancel(std::uint64_t request) override;

  std::size_t running() const;
  std::size_t cancelled() const;
  std::vector<GenerationRequest> seen() const;
  /// Waits until that many requests run; false after 10 s.
  bool wait_running(std::size_t count) const;

 private:
  struct Job {
    GenerationRequest request;
    std::shared_ptr<GenerationSink> sink;
    std::vector<TokenId> prompt;
    std::uint32_t step = 0;
    Script script;
  };
  void run();
  bool advance(Job& job);  ///< true: ended

  const GatewayModel& model_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Script script_;
  std::map<std::uint64_t, Job> jobs_;
  std::vector<GenerationRequest> seen_;
  std::uint64_t next_id_ = 1;
  std::size_t cancelled_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::testing
