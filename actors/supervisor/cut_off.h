#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/membership.h"

namespace troupe {

/// One of two members that do not reach each other.
struct CutOff {
  NodeId id = {};
  bool own_end = false;     ///< it says that it lies there
  std::int64_t broken = 0;  ///< its links that are
  std::int64_t shards = 0;  ///< what of the version in force goes with it
  std::int64_t pieces = 0;
  bool elsewhere = false;  ///< its bulk lane is not where the head sees it
};

/// Which of both goes. Who says itself that it cannot, unless it alone serves; else who is cut off
/// from more members; else whose loss costs less, so that one who joins wrongly throws nobody out
/// who serves; else who is not where the head sees it, since others see what the head does; else
/// the newer one.
NodeId who_goes(const CutOff& a, const CutOff& b);

/// Whether a member's bulk lane is at another address than the one that its session comes from
/// ("10.0.0.1:99"): behind a translation of addresses, or at another interface.
bool is_elsewhere(const std::string& fabric_address, const std::string& session_peer);

/// "node-2 (net:10.0.0.1:4711 by eth0 of gpu7)", for people.
std::string with_bulk_lane(const Member& member);

}  // namespace troupe
