#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/plan/measured.h"
#include "tools/troupe/plan/speed.h"

namespace troupe::cli {

/// The flags of `troupe plan` that say how fast devices are and what is asked of them.
struct SpeedFlags {
  std::int64_t context = 0;
  double skew = 1;
  std::string expert_loads;
  std::string memory_bandwidth, compute, network;
  std::vector<std::string> measured;
  bool measure = false;
  std::string products = "auto";
};

/// What the flags say, whatever the model: errors name the flag.
Status check(const SpeedFlags& flags);
/// Reads the files that the flags name; measures, which takes seconds, if they ask for it, into
/// `measured`.
Result<SpeedQuestion> resolve(const SpeedFlags& flags, const FitQuestion& question,
                              std::optional<MeasuredDevice>& measured);

}  // namespace troupe::cli
