#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Which tensor-parallel rank computes an expert for the rows of all ranks: one whose device has a
/// copy. Ranks may know of different placements for a moment: what nobody computed is asked for,
/// and what two computed counts once.
class ExpertRanks {
 public:
  ExpertRanks(std::int32_t layers, std::int32_t experts)
      : experts_(experts),
        ranks_(static_cast<std::size_t>(layers) * static_cast<std::size_t>(experts), kNone) {}

  void set(std::int32_t layer, std::int32_t expert, std::uint32_t rank) {
    ranks_[place_of(layer, expert)] = static_cast<std::uint8_t>(rank);
  }
  /// None: no rank's device has it.
  std::optional<std::uint32_t> of(std::int32_t layer, std::int32_t expert) const {
    const std::size_t place = place_of(layer, expert);
    if (place >= ranks_.size() || ranks_[place] == kNone) return std::nullopt;
    return ranks_[place];
  }

 private:
  static constexpr std::uint8_t kNone = 0xff;
  std::size_t place_of(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts_) +
           static_cast<std::size_t>(expert);
  }

  std::int32_t experts_;
  std::vector<std::uint8_t> ranks_;  // [layers, experts]
};

}  // namespace troupe
