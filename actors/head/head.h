#pragma once

#include "actors/base/host.h"
#include "actors/head/head_surroundings.h"
#include "actors/head/session_hub.h"
#include "actors/router/request_desk.h"
#include "actors/router/router.h"
#include "actors/supervisor/supervisor.h"
#include "actors/supervisor/supervisor_effects.h"

namespace troupe {

/// The Supervisor's hands.
struct HeadHands {
  Ref<SupervisorInbox> self;
  SessionHub* hub;
  HeadSurroundings* surroundings;

  void carry_out(KeepNextNode&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(BindSession&& e, const Supervisor&);
  void carry_out(CloseSession&& e, const Supervisor&);
  void carry_out(SendToSession&& e, const Supervisor&);
  void carry_out(AnswerStatus&& e, const Supervisor& supervisor);
  void carry_out(EventNoted&& e, const Supervisor&);
  void carry_out(TokensCounted&& e, const Supervisor&);
  void carry_out(ImbalanceMeasured&& e, const Supervisor&);
  void carry_out(LoadsMeasured&& e, const Supervisor&);
  void carry_out(HeadMayEnd&& e, const Supervisor&);
  void carry_out(KeepNumerics&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(KeepTensors&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(KeepCanary&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(ForgetKnown&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(KeepStandby&& e, const Supervisor&) { surroundings->keep(e); }
  void carry_out(CopyKnown&& e, const Supervisor&) { surroundings->copy(e); }
  void carry_out(AskStandby&& e, const Supervisor&) { surroundings->ask(e); }
  void carry_out(ReadTensors&& e, const Supervisor&) { surroundings->read(std::move(e)); }
  void turned(const Supervisor& supervisor);
};

/// The actors of a head in a host: Supervisor, Router and the sessions. HeadNode makes one in a
/// process and adds the doors; the simulation makes one of its own.
class Head {
 public:
  struct Parts {
    SupervisorOptions supervisor;
    Router::Options router;
    HeadSurroundings& surroundings;
    RequestDesk& desk;
    JournalStore* store;  ///< null if the Router keeps no journal
    SessionLane& lane;
  };
  /// `host` and what `parts` refers to must outlive it. Both actors run when it returns.
  Head(Host& host, Parts parts);
  /// Ends both actors. In a host with threads they must have ended before, and the lane's events.
  ~Head();

  SessionHub& hub() { return hub_; }
  Ref<SupervisorInbox> supervisor() const { return supervisor_; }
  Ref<RouterInbox> router() const { return router_; }

 private:
  Host& host_;
  const Ref<SupervisorInbox> supervisor_;
  const Ref<RouterInbox> router_;
  SessionHub hub_;
};

}  // namespace troupe
