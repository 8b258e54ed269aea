#pragma once

#include <memory>
#include <string>

#include "actors/base/host.h"
#include "actors/interfaces.h"
#include "tests/actors/device/manual_device.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"

/// What the hands of actors that use a device are tested with.
namespace troupe::testing {

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
