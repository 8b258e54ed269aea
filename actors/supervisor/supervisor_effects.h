#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/effects.h"
#include "actors/interfaces.h"
#include "actors/supervisor/known_state.h"

namespace troupe {

// What only the Supervisor asks for; the head's hands carry it out (actors/head).

/// To be in the state folder before anything that follows: no id is ever given to a second worker,
/// not even by a later life of the head, which does not know who is cut off and still serves.
struct KeepNextNode {
  std::uint32_t next_node = 1;
};
/// From now on what the session brings comes from (node, incarnation), NodeAgent, and what goes to
/// that address goes by the session.
struct BindSession {
  std::uint32_t session = 0;
  NodeId node;
  Incarnation incarnation;
};
/// After what was sent has left; a binding of that session ends.
struct CloseSession {
  std::uint32_t session = 0;
  std::string reason;
};
/// To the other end of a session that is not a member's; see SessionInbox.
struct SendToSession {
  std::uint32_t session = 0;
  MessagePtr message;
};
/// The status is wanted: by a door of this process, or by a session's query.
struct AnswerStatus {
  std::shared_ptr<std::promise<std::string>> reply;  ///< null: the session
  std::uint32_t session = 0;
  std::uint64_t query = 0;
};
/// To log, and to hand to subscribers in this process.
struct EventNoted {
  ClusterEvent event;
};
/// For the metrics: tokens of the experts, as a node has just told.
struct TokensCounted {
  ExpertCounts counts;
};
/// For the metrics, every few seconds: how uneven a layer's load is.
struct ImbalanceMeasured {
  std::int32_t layer = 0;
  double imbalance = 1;
};
/// For the metrics: how busy a node's devices were since it told before, 0 to 1 each.
struct LoadsMeasured {
  NodeId node;
  std::vector<float> utilization;
};
/// Everyone has left, or another is the head: this one may end.
struct HeadMayEnd {
  std::string deposed_by = {};  ///< where that listens
};

// What a later life of the head must hold to, in the state folder.
struct KeepNumerics {
  Numerics numerics = Numerics::kReference;
};
/// In addition to what is kept; a tensor that is kept already is replaced.
struct KeepTensors {
  std::vector<KnownTensor> tensors;
};
struct KeepCanary {
  KnownCanary canary;
};
/// The cluster was stopped: the next one may begin with other weights and numerics.
struct ForgetKnown {};

/// Who may take over, for the next life: it asks them first; StandbyKept follows. No address:
/// nobody, and nothing follows.
struct KeepStandby {
  std::string address;
  std::uint32_t session = 0;
};
/// What is known of the checkpoint goes to that session, too: all, then what is added. 0: nowhere.
struct CopyKnown {
  std::uint32_t session = 0;
  std::uint32_t protocol = 0;  ///< that is spoken there
};
/// Tell whoever listens there that this head goes on; StandbyAnswered follows if it answers.
struct AskStandby {
  std::string address;
};

/// The head reads these tensors of its own checkpoint; TensorsRead follows, unless storage hangs.
struct ReadTensors {
  std::uint64_t reading = 0;  ///< its number, for the answer
  std::vector<std::string> tensors;
  std::uint64_t bytes_max = 0;  ///< it stops after them, but reads one at least
  bool fresh = false;           ///< for a dispute: the answer is a vote
};

using SupervisorEffects =
    Effects<KeepNextNode, BindSession, CloseSession, SendToSession, AnswerStatus, EventNoted,
            TokensCounted, ImbalanceMeasured, LoadsMeasured, HeadMayEnd, KeepNumerics, KeepTensors,
            KeepCanary, ForgetKnown, ReadTensors, KeepStandby, CopyKnown, AskStandby>;

template <class T>
requires TakesWire<SessionInbox, T>
void send_to_session(SupervisorEffects& effects, std::uint32_t session, T&& message) {
  effects.add(SendToSession{session, message_of(std::forward<T>(message))});
}

}  // namespace troupe
