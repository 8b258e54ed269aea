#include "actors/supervisor/cut_off.h"

#include <tuple>

#include "transport/bulk_address.h"

namespace troupe {

NodeId who_goes(const CutOff& a, const CutOff& b) {
  const auto serves = [](const CutOff& c) { return c.shards > 0 || c.pieces > 0; };
  const auto worth = [&](const CutOff& c) {
    const CutOff& other = &c == &a ? b : a;
    const bool at_fault = c.own_end && (serves(other) || !serves(c));
    return std::tuple(!at_fault, -c.broken, c.shards, c.pieces, !c.elsewhere,
                      -static_cast<std::int64_t>(c.id.value));
  };
  return worth(a) < worth(b) ? a.id : b.id;
}

bool is_elsewhere(const std::string& fabric_address, const std::string& session_peer) {
  const auto bulk = parse_bulk_address(fabric_address);
  const std::string seen = host_of(session_peer);
  return bulk.ok() && !bulk->host.empty() && bulk->host != seen.substr(0, seen.find('%'));
}

std::string with_bulk_lane(const Member& member) {
  const FabricPort& port = member.inventory.fabric_port;
  return to_string(member.id) + " (" + member.inventory.fabric_address +
         (port.interface.empty() ? "" : " by " + port.interface) + " of " + member.inventory.host +
         ")";
}

}  // namespace troupe
