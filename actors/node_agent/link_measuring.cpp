#include "actors/node_agent/link_measuring.h"

#include <utility>

namespace troupe {

void LinkMeasuring::begin(const MeasureLink& order, const Status& connected,
                          const AgentVoice& voice, AgentEffects& effects) {
  stop(effects);
  if (!connected.ok())
    return voice.tell_head(LinkMeasured{order.number, {}, connected.error()}, effects);
  number_ = order.number;
  effects.add(MeasurePeer{order});
}

void LinkMeasuring::end(const EndMeasure& end, AgentEffects& effects) {
  if (number_ == end.number) stop(effects);
}

void LinkMeasuring::result(LinkResult result, const AgentVoice& voice, AgentEffects& effects) {
  if (number_ != result.measured.number) return;
  number_.reset();
  deadline_.reset();
  voice.tell_head(std::move(result.measured), effects);
}

void LinkMeasuring::watch(TimePoint now, const std::string& progress, const AgentVoice& voice,
                          AgentEffects& effects) {
  if (!number_) return;
  if (!deadline_) deadline_ = now + kDeadline;
  if (now < *deadline_) return;
  LinkMeasured late{*number_,
                    {},
                    deadline_exceeded("Nothing came back any more " + progress +
                                      ": the peer hangs, or the link is too slow.")};
  stop(effects);
  voice.tell_head(std::move(late), effects);
}

void LinkMeasuring::stop(AgentEffects& effects) {
  if (number_) effects.add(EndMeasuring{*number_});
  number_.reset();
  deadline_.reset();
}

}  // namespace troupe
