// What the other end of a session speaks.
#include <optional>

#include "actors/control/lane_core.h"

namespace troupe::control {
namespace {

/// Of a message that says so: the first one of each end.
std::optional<ProtocolRange> spoken_by_sender(const Message& message) {
  if (const auto* greeting = std::get_if<Greeting>(&message)) return greeting->protocol;
  if (const auto* join = std::get_if<Join>(&message)) return join->protocol;
  if (const auto* hello = std::get_if<ClientHello>(&message)) return hello->protocol;
  if (const auto* follow = std::get_if<Follow>(&message)) return follow->protocol;
  return std::nullopt;
}

}  // namespace

void LaneCore::learn_protocol(SessionId session, const Message& message) {
  const auto spoken = spoken_by_sender(message);
  if (!spoken) return;
  const std::lock_guard lock(mutex_);
  if (const auto flow = flows_.find(session); flow != flows_.end())
    flow->second.protocol = common_protocol(*spoken, kProtocol);
}

}  // namespace troupe::control
