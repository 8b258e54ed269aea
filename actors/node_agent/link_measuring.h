#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/node_agent/agent_voice.h"
#include "runtime/clock.h"
#include "runtime/result.h"

namespace troupe {

/// The measurement of a connection that the head wants of this member, one at a time. The head
/// hears once what came of each, unless it has ended it or another has taken its place.
class LinkMeasuring {
 public:
  /// A connection that brings echoes is measured within half of it.
  static constexpr Duration kDeadline = std::chrono::seconds(5);

  /// `connected`: whether there is a connection to that peer, or why not.
  void begin(const MeasureLink& order, const Status& connected, const AgentVoice& voice,
             AgentEffects& effects);
  void end(const EndMeasure& end, AgentEffects& effects);
  void result(LinkResult result, const AgentVoice& voice, AgentEffects& effects);
  /// With every wake: ends one that lasts too long. `progress` says how far it is.
  void watch(TimePoint now, const std::string& progress, const AgentVoice& voice,
             AgentEffects& effects);
  /// The membership is over.
  void stop(AgentEffects& effects);

 private:
  std::optional<std::uint64_t> number_;  ///< of the one that is under way
  std::optional<TimePoint> deadline_;    ///< from the first wake that saw it
};

}  // namespace troupe
