#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

/// Which versions of Troupe work together. Two programs talk if their ranges of protocols meet, by
/// the newest that both speak: so a cluster is upgraded one process after the other.
namespace troupe {

struct ProtocolRange {
  std::uint32_t oldest = 1;
  std::uint32_t newest = 1;
  bool operator==(const ProtocolRange&) const = default;
};

/// What this program speaks. `newest` grows with a kind of message or of record. `oldest` becomes
/// the same where neighbours must be alike: the layout of weights (kernels/cpu/weight_layout.h),
/// what the numerics give, what a message means. Not inline: a program of another version, for
/// tests, is linked with another one.
extern const ProtocolRange kProtocol;

/// The newest that both speak; 0: there is none.
inline std::uint32_t common_protocol(ProtocolRange a, ProtocolRange b) {
  const std::uint32_t newest = std::min(a.newest, b.newest);
  return newest >= std::max(a.oldest, b.oldest) ? newest : 0;
}

inline std::string to_string(ProtocolRange range) {
  return std::to_string(range.oldest) + " to " + std::to_string(range.newest);
}

/// The protocol with which a kind of message or record came, if that is newer than the oldest that
/// anybody speaks: the kind's own file says so. Whoever speaks an older one does not know it.
template <class Kind>
inline constexpr std::uint32_t kSince = 0;

template <class... Kinds>
std::uint32_t since(const std::variant<Kinds...>& one) {
  return std::visit([]<class Kind>(const Kind&) { return kSince<Kind>; }, one);
}

}  // namespace troupe
