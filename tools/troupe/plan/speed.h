#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/round.h"
#include "tools/troupe/plan/fit.h"

/// How fast a layout that fits would be.
namespace troupe {

/// What is known of the speed of each of FitQuestion::nodes.
struct GroupSpeed {
  DeviceSpeed device_speed;
  std::string source;  ///< "data sheet", "measured", "flags", or several; empty: nothing is known
  bool known() const { return device_speed.ceilings.memory > 0 && device_speed.ceilings.bf16 > 0; }
};

struct SpeedQuestion {
  std::int64_t context = 0;  ///< tokens of a sequence; 0: the default
  double skew = 1;           ///< load of a layer's busiest expert over the mean
  /// Measured loads of a layer's experts instead.
  std::map<std::int32_t, std::vector<double>> loads;
  std::vector<GroupSpeed> groups;
};

inline constexpr std::int64_t kContextDefault = 4096;
/// Sequences of a replica that are looked at, and the most that it may have.
inline constexpr std::int64_t kBatches[] = {1, 32, 128};

/// What sets the pace.
enum class Limit : std::uint8_t { kMemory, kCompute, kWire, kOverhead };
/// "memory", "compute", "wire", "overhead".
std::string_view to_string(Limit limit);

struct StepSpeed {
  std::int64_t rows = 0;  ///< tokens a step of a replica, or its sequences
  double tokens = 0;      ///< that a round gives, of all replicas
  Round round;
  Limit limit = Limit::kMemory;
  double tokens_per_s_max() const { return tokens / round.bound.seconds(); }
  double tokens_per_s() const { return tokens / round.seconds(); }
};

/// A change that was tried, and what it gives.
struct SpeedChange {
  std::string what;
  double tokens_per_s = 0;
};

struct SpeedAnswer {
  std::string missing;  ///< not empty: why nothing is said, and what to give
  std::int64_t context = 0;
  std::int64_t sequences_max = 0;  ///< of a replica: flags and cache
  bool cache_limits = false;       ///< it is the cache
  double skew = 1;                 ///< mean over layers
  double imbalance = 1;            ///< of devices, the same
  bool lacks_network = false;
  std::vector<StepSpeed> decode;  ///< rising rows
  StepSpeed prefill;
  double prompt_s = 0;  ///< expected until a prompt of `context` tokens has its first token
  std::vector<SpeedChange> changes;  ///< for the largest of `decode`
};

/// Errors: kInvalidArgument names the flag.
Status check_speed(const FitQuestion& question, const SpeedQuestion& speed);
/// After check_speed().
Result<SpeedAnswer> find_speed(const FitQuestion& question, const Fit& fit,
                               const SpeedQuestion& speed);

}  // namespace troupe
