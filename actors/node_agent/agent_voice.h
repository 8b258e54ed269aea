#pragma once

#include <string>
#include <utility>

#include "actors/node_agent/agent_effects.h"

namespace troupe {

/// Who an agent is now, and how it speaks: to the head, to other nodes and to people.
class AgentVoice {
 public:
  NodeId id;  ///< 0: no member
  Incarnation incarnation;
  Incarnation head;  ///< its life that greeted this worker
  BulkPlace bulk;    ///< as found by the way of the newest session

  Address self() const { return Ref<NodeAgentInbox>(id, incarnation).address; }

  template <class T>
  requires TakesWire<SupervisorInbox, T>
  void tell_head(T&& message, AgentEffects& effects) const {
    const Ref<SupervisorInbox> supervisor(kHeadNode, head);
    effects.add(SendAs{{self(), supervisor.address, message_of(std::forward<T>(message))}});
  }
  /// Logs it, unless it is what was said last.
  void say(std::string text, AgentEffects& effects) {
    if (text == said_) return;
    said_ = text;
    effects.add(LogLine{std::move(text)});
  }
  /// Answers a message that is out of place.
  void refuse(const Envelope& envelope, std::string reason, AgentEffects& effects) {
    ++refused_;
    say("A message was refused: " + reason, effects);
    effects.add(SendAs{
        {self(), envelope.from, message_of(undeliverable(envelope, refused(std::move(reason))))}});
  }
  std::uint64_t refused_messages() const { return refused_; }

 private:
  std::string said_;
  std::uint64_t refused_ = 0;
};

}  // namespace troupe
