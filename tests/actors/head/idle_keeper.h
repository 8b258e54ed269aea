#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/head/state_keeper.h"

namespace troupe::testing {

/// Keeps nothing.
struct IdleKeeper final : StateKeeper {
  Result<KnownState> known(const std::string&, const std::string&) override { return KnownState{}; }
  void keep_next_node(std::uint32_t) override {}
  void keep_numerics(Numerics) override {}
  void keep_tensors(const std::vector<KnownTensor>&) override {}
  void keep_canary(const KnownCanary&) override {}
  Status keep_standby(const std::string&) override { return {}; }
  std::string known_lines(std::function<void(std::string)>) override { return "line\n"; }
  void forget_known() override {}
};

}  // namespace troupe::testing
