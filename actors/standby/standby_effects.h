#pragma once

#include <cstdint>
#include <string>

#include "actors/base/effects.h"
#include "actors/router/messages.h"
#include "actors/standby/follow_state.h"

namespace troupe {

// What only a Standby asks for; StandbyHands carry it out.

/// Begin a session with the head; HeadUp or HeadDown follows.
struct SeekHead {};
/// End it, after what was sent has left.
struct LeaveHead {};
struct ToHead {
  MessagePtr message;
};
/// To whoever has sought a head here.
struct ToSession {
  std::uint32_t session = 0;
  MessagePtr message;
};
/// After what was sent has left.
struct EndSession {
  std::uint32_t session = 0;
  std::string reason;
};
/// To the journal of its own state folder; JournalKept or JournalFailed follows.
struct KeepCopy {
  KeepRecords records;
};
/// On the disk before anything that follows.
struct KeepFollowing {
  FollowState state;
};
struct KeepKnown {
  KnownLines lines;
};
/// It is the head from now on, of that term.
struct TakeOver {
  Incarnation term;
};
/// Its process ends.
struct StandbyEnds {
  int code = 0;
  std::string reason;
};
/// For people.
struct StandbySays {
  std::string text;
};

using StandbyEffects = Effects<SeekHead, LeaveHead, ToHead, ToSession, EndSession, KeepCopy,
                               KeepFollowing, KeepKnown, TakeOver, StandbyEnds, StandbySays>;

}  // namespace troupe
