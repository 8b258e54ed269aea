#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "actors/base/post.h"
#include "actors/control/control_lane.h"
#include "actors/control/head_link.h"
#include "actors/interfaces.h"

namespace troupe {

/// What comes to a standby, from its head and from those who seek a head here, as mail of its
/// actor. Thread-safe.
class StandbyMail final : public ControlEvents {
 public:
  /// `post` must outlive it.
  explicit StandbyMail(Post& post) : post_(post) {}

  /// The other end of a session of those who seek a head here.
  Address address_of(std::uint32_t session) const {
    return Ref<SessionInbox>(self.address.node, self.address.incarnation, session).address;
  }
  /// For its link to the head, which it must outlive.
  HeadLink::Events of_head() {
    return {.up = [this](const ControlWay&) { post_.tell(self, HeadUp{}); },
            .message = [this](Envelope envelope) { deliver(std::move(envelope)); },
            .down =
                [this](std::string reason, bool foreign) {
                  post_.tell(self, HeadDown{std::move(reason), foreign});
                }};
  }

  // ControlEvents: of the lane.
  void on_session_up(SessionId session, SessionEnds ends) override {
    post_.tell(self, SessionUp{session.value, std::move(ends.peer)});
  }
  void on_message(SessionId session, Envelope envelope) override {
    envelope.from = address_of(session.value);
    deliver(std::move(envelope));
  }
  void on_session_down(SessionId session, SessionEnd end) override {
    post_.tell(self, SessionDown{session.value, std::move(end.text)});
  }

  const Ref<StandbyInbox> self{kHeadNode, Incarnation{1}};

 private:
  void deliver(Envelope envelope) {
    envelope.to = self.address;
    post_.deliver(std::move(envelope));
  }

  Post& post_;
};

}  // namespace troupe
