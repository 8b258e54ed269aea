#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace troupe::kernels {

/// Which parts of a range of addresses are taken: what the memory of a device is dealt out by. Runs
/// begin on multiples of kStep and are some of them; the smallest gap that fits is taken.
class AddressPool {
 public:
  /// `gap`: what stays free behind each run.
  AddressPool(std::size_t bytes, std::size_t step, std::size_t gap = 0);

  struct Run {
    std::size_t at = 0, bytes = 0;  ///< without the gap
  };
  /// None: there is no room.
  std::optional<Run> take(std::size_t bytes);
  void give_back(const Run& run);

 private:
  const std::size_t step_, gap_;
  std::map<std::size_t, std::size_t> free_;           // begin, bytes; no two touch
  std::multimap<std::size_t, std::size_t> by_bytes_;  // the same, bytes, begin
  void add(std::size_t at, std::size_t bytes);
  void remove(std::map<std::size_t, std::size_t>::iterator free);
};

}  // namespace troupe::kernels
