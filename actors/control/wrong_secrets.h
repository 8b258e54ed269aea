#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runtime/clock.h"

namespace troupe::control {

/// Who said a wrong secret, and how often of late: more than `kWrongMax` in a minute from one
/// address, and what else is wrong from there waits for the next minute. A secret of 128 bits is
/// not guessed; this keeps those who try from costing the head more than they pay. Not thread-safe.
class WrongSecrets {
 public:
  static constexpr std::size_t kWrongMax = 10;
  static constexpr std::size_t kAddressesMax = 1024;
  static constexpr Duration kWindow = std::chrono::minutes(1);

  /// Whether one from there that may be wrong is looked at.
  bool may_try(const std::string& address, TimePoint now);
  void note(const std::string& address, TimePoint now);

 private:
  struct Tries {
    TimePoint since{};
    std::size_t count = 0;
  };
  std::map<std::string, Tries> tries_;
};

}  // namespace troupe::control
