#include "actors/supervisor/sessions.h"

#include "runtime/limits.h"

namespace troupe {

void Sessions::open(std::uint32_t session, std::string peer, TimePoint now) {
  Session& s = sessions_[session];
  s.peer = std::move(peer);
  s.opened = now;
}

std::optional<NodeId> Sessions::end(std::uint32_t session) {
  const auto node = sessions_.extract(session);
  if (node.empty() || node.mapped().kind != Kind::kMember) return std::nullopt;
  return node.mapped().member;
}

const Sessions::Session* Sessions::find(std::uint32_t session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : &it->second;
}

void Sessions::become_client(std::uint32_t session) { sessions_.at(session).kind = Kind::kClient; }

void Sessions::become_member(std::uint32_t session, NodeId node) {
  Session& s = sessions_.at(session);
  s.kind = Kind::kMember;
  s.member = node;
}

void Sessions::subscribe(std::uint32_t session) { sessions_.at(session).subscribed = true; }

void Sessions::close(std::uint32_t session, std::string reason, SupervisorEffects& effects) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || it->second.closing) return;
  it->second.closing = true;
  effects.add(CloseSession{session, std::move(reason)});
}

void Sessions::close_all(const std::string& reason, SupervisorEffects& effects) {
  for (const auto& [number, session] : sessions_) close(number, reason, effects);
}

void Sessions::close_silent(TimePoint now, SupervisorEffects& effects) {
  for (const auto& [number, session] : sessions_) {
    if (session.kind != Kind::kStranger) continue;
    if (now - session.opened < limits::kHandshakeDeadline) continue;
    close(number, "It did not say what it wants in time.", effects);
  }
}

void Sessions::record(std::string kind, std::string text, TimePoint now,
                      SupervisorEffects& effects) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  ClusterEvent event{started_unix_ms_ + since.count(), std::move(kind), std::move(text)};
  MessagePtr news;  // made once for all subscribers
  for (const auto& [number, session] : sessions_) {
    if (!session.subscribed || session.closing) continue;
    if (!news) news = message_of(ClusterNews{event});
    effects.add(SendToSession{number, news});
  }
  events_.push_back(event);
  if (events_.size() > limits::kClusterEventsMax) events_.pop_front();
  effects.add(EventNoted{std::move(event)});
}

void Sessions::arrange_wake(SupervisorEffects& effects) const {
  for (const auto& [number, session] : sessions_)
    if (session.kind == Kind::kStranger && !session.closing)
      effects.wake_at(session.opened + limits::kHandshakeDeadline);
}

std::string Sessions::violation() const {
  if (events_.size() > limits::kClusterEventsMax) return "The log of events has grown too long.";
  for (const auto& [number, session] : sessions_)
    if (session.subscribed && session.kind != Kind::kClient)
      return "Session " + std::to_string(number) + " is no client's and has subscribed.";
  return {};
}

}  // namespace troupe
