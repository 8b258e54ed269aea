#include "actors/supervisor/sessions.h"

#include "runtime/limits.h"

namespace troupe {

void Sessions::open(SessionUp up, TimePoint now) {
  Session& s = sessions_[up.session];
  s.peer = std::move(up.peer);
  s.certificate = std::move(up.certificate);
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

void Sessions::become_standby(std::uint32_t session) {
  sessions_.at(session).kind = Kind::kStandby;
}

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
  if (auto event = log_.add(std::move(kind), std::move(text), now))
    tell(std::move(*event), effects);
}

void Sessions::sum_up_events(TimePoint now, SupervisorEffects& effects) {
  for (ClusterEvent& event : log_.sum_up(now)) tell(std::move(event), effects);
}

void Sessions::tell(ClusterEvent event, SupervisorEffects& effects) const {
  MessagePtr news;  // made once for all subscribers
  for (const auto& [number, session] : sessions_) {
    if (!session.subscribed || session.closing) continue;
    if (!news) news = message_of(ClusterNews{event});
    effects.add(SendToSession{number, news});
  }
  effects.add(EventNoted{std::move(event)});
}

void Sessions::arrange_wake(SupervisorEffects& effects) const {
  for (const auto& [number, session] : sessions_)
    if (session.kind == Kind::kStranger && !session.closing)
      effects.wake_at(session.opened + limits::kHandshakeDeadline);
  if (const auto next = log_.next_sum()) effects.wake_at(*next);
}

std::string Sessions::violation() const {
  if (auto v = log_.violation(); !v.empty()) return v;
  for (const auto& [number, session] : sessions_)
    if (session.subscribed && session.kind != Kind::kClient)
      return "Session " + std::to_string(number) + " is no client's and has subscribed.";
  return {};
}

}  // namespace troupe
