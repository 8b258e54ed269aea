#include <chrono>
#include <string>
#include <utility>

#include "actors/node_agent/node_agent.h"

// How what a worker does as a member begins, is kept while no head is there, and ends.

namespace troupe {

/// No retry helps. The head hears of it, so that it can count and log it.
void NodeAgent::give_up(const std::string& reason, Effects& effects) {
  voice_.tell_head(Leave{reason}, effects);
  end(1, reason, effects);
}

void NodeAgent::end(int code, std::string reason, Effects& effects) {
  stop_role(effects);
  state_ = State::kEnded;
  effects.add(CloseHead{});
  effects.add(WorkerExit{code, std::move(reason)});
}

void NodeAgent::begin_role(const WorkerLife& life, Effects& effects) {
  const bool goes_on = versions_.suspended() == life;
  if (!goes_on) stop_role(effects);
  versions_.resume();
  voice_.id = life.id;
  voice_.incarnation = life.incarnation;
  if (goes_on)
    effects.add(ResumeServing{});
  else
    effects.add(JoinedCluster{life.id, life.incarnation});
  voice_.say(
      "Joined the cluster at " + options_.head + " as " + to_string(life.id) +
          (goes_on ? "; it goes on with what it served." : "; waiting for its part of the model."),
      effects);
}

/// The membership is over. What serves is kept for a head that knows of it, unless it may be wrong.
void NodeAgent::suspend_role(Effects& effects) {
  const WorkerLife life{voice_.id, voice_.incarnation};
  if (life.id == kHeadNode) return;
  if (!versions_.may_suspend()) return stop_role(effects);
  leave(life, effects);
  versions_.suspend(life, effects);
  effects.add(SuspendServing{});
}

/// Ends what this node does, or did, as a member; its weights stay, and its id to ask for again.
void NodeAgent::stop_role(Effects& effects) {
  const WorkerLife life = versions_.suspended().value_or(WorkerLife{voice_.id, voice_.incarnation});
  if (life.id == kHeadNode) return;
  if (!suspended()) leave(life, effects);
  effects.add(StopServing{life.id, life.incarnation});
  versions_.clear();
}

/// Nobody has come for it: its memory is free for others, while the head is sought on.
void NodeAgent::let_go(Effects& effects) {
  lease_.let_go();
  stop_role(effects);
  held_ = {};
  effects.add(LetWeightsGo{});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(lease_.keep_for()).count();
  voice_.say("No head has come for " + std::to_string(seconds) +
                 " s (--keep-for): the weights are let go. The head is sought on.",
             effects);
}

void NodeAgent::leave(const WorkerLife& life, Effects& effects) {
  if (lease_.waits()) effects.add(EndHold{life.id, life.incarnation, false});
  links_.forget_all(effects);
  term_.left(life);
  voice_.id = {};
  voice_.incarnation = {};
}

void NodeAgent::on(const LeaveCluster& leave, TimePoint now, Effects& effects) {
  if (state_ == State::kEnded || state_ == State::kLeaving) return;
  if (state_ != State::kMember) return end(0, leave.reason, effects);
  voice_.tell_head(Leave{leave.reason}, effects);
  stop_role(effects);
  enter(State::kLeaving, limits::kLeaveDeadline, now);
}

}  // namespace troupe
