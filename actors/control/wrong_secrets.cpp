#include "actors/control/wrong_secrets.h"

#include <algorithm>

namespace troupe::control {

bool WrongSecrets::may_try(const std::string& address, TimePoint now) {
  const auto at = tries_.find(address);
  if (at == tries_.end()) return true;
  if (now - at->second.since < kWindow) return at->second.count < kWrongMax;
  tries_.erase(at);
  return true;
}

void WrongSecrets::note(const std::string& address, TimePoint now) {
  if (tries_.size() >= kAddressesMax && !tries_.contains(address))
    tries_.erase(
        std::ranges::min_element(tries_, {}, [](const auto& entry) { return entry.second.since; }));
  Tries& tries = tries_[address];
  if (tries.count == 0 || now - tries.since >= kWindow) tries = {now, 0};
  ++tries.count;
}

}  // namespace troupe::control
