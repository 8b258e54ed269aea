#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/frontend/generation_service.h"
#include "actors/frontend/named_requests.h"

namespace troupe {

/// The cluster as a standby's HTTP door shows it: nothing is served here, and why. A client that
/// has both addresses goes on to the head's. Thread-safe.
class StandbyDoor final : public GenerationService, public NamedRequests, public ClusterView {
 public:
  /// `message`: what the standby does now, one sentence.
  StandbyDoor(std::string head, std::string version, std::function<std::string()> message)
      : head_(std::move(head)), version_(std::move(version)), message_(std::move(message)) {}

  Result<AcceptedRequest> submit(GenerationRequest, std::shared_ptr<GenerationSink>) override {
    return refusal();
  }
  void cancel(std::uint64_t) override {}
  Result<std::vector<NamedRequest>> find(const std::string&, std::uint64_t) override {
    return refusal();
  }
  Result<std::vector<NamedRequest>> find_key(const std::string&, std::uint64_t) override {
    return refusal();
  }
  Result<AcceptedRequest> attach(const RequestWanted&, std::shared_ptr<GenerationSink>) override {
    return refusal();
  }
  Status forget(const std::string&, std::uint64_t) override { return refusal(); }

  std::string status_json() const override;
  std::string refuses() const override { return "The cluster is standby."; }

 private:
  Error refusal() const { return unavailable(message_() + " Ask " + head_ + "'s API."); }

  const std::string head_, version_;
  const std::function<std::string()> message_;
};

}  // namespace troupe
