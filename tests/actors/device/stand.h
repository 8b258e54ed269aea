#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/host.h"
#include "actors/device/device.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"

/// What the hands of actors that use a device are tested with.
namespace troupe::testing {

/// A device whose jobs run when the test says so.
class ManualDevice final : public Device {
 public:
  ManualDevice() : Device(Options{}) {}

  Status submit(std::function<void()> job) override {
    if (refuses) return resource_exhausted("the queue is full");
    jobs_.push_back(std::move(job));
    return {};
  }
  /// False if there was none.
  bool run_one() {
    if (jobs_.empty()) return false;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    job();
    return true;
  }
  void run_all() {
    while (run_one()) {
    }
  }
  std::size_t jobs() const { return jobs_.size(); }

  bool makes_progress(TimePoint, Duration) override { return !stands_still; }
  void probe() override {}
  std::uint32_t probe_us() const override { return 0; }
  float take_utilization(TimePoint) override { return 0; }

  bool refuses = false, stands_still = false;

 private:
  std::deque<std::function<void()>> jobs_;
};

/// A host that starts nothing: hands only use its post. Of each address there is a letter box.
class TestHost final : public Host {
 public:
  TestHost() : Host(post_) {}

  TimePoint now() const override { return TimePoint{}; }
  void spawn(const Address&, const Make&, Mail) override {}
  void end(const Address&) override {}
  bool checks_invariants() const override { return true; }
  void broken(const Address&, const std::string& invariant) override { violation = invariant; }

  std::shared_ptr<MailQueue> box(const Address& address) {
    auto box = std::make_shared<MailQueue>();
    post_.attach(address, box);
    return box;
  }
  /// A life of that actor; its end is told to `agent`.
  Life life_of(const Address& actor, const Ref<NodeAgentInbox>& agent) {
    return make_life(post_,
                     Mail(actor, agent.address, local_message_of<NodeAgentInbox>(Ended{actor})));
  }

  std::string violation;

 private:
  Post post_;
};

}  // namespace troupe::testing
