#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::grammar {

/// Gives equal sequences of numbers one id, counted from 0.
class SequenceTable {
 public:
  /// The sequence's id; size() grows if it is new.
  std::uint32_t intern(std::span<const std::uint32_t> sequence);
  /// Its id, or size() if it is not there.
  std::uint32_t find(std::span<const std::uint32_t> sequence) const;
  std::span<const std::uint32_t> operator[](std::uint32_t id) const {
    return {pool_.data() + ends_[id], ends_[id + 1] - ends_[id]};
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size() - 1); }
  /// Forgets all sequences from `size` on.
  void shrink(std::uint32_t size);
  /// Of what is in it; those that were forgotten do not count.
  std::size_t bytes() const {
    return pool_.size() * 4 + ends_.size() * sizeof(std::size_t) + slots_for(size()) * 4;
  }

 private:
  static std::size_t slots_for(std::uint32_t size) {
    return std::max(kSlotsMin, std::bit_ceil(std::size_t{2} * size));
  }
  std::size_t slot_of(std::span<const std::uint32_t> sequence) const;
  void grow();

  static constexpr std::size_t kSlotsMin = 16;

  std::vector<std::uint32_t> pool_;
  std::vector<std::size_t> ends_ = {0};  // [size + 1]: where each ends and the next begins
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(kSlotsMin, 0);  // id + 1, or 0
};

}  // namespace troupe::grammar
