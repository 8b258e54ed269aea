#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/buffer.h"

namespace troupe {

/// What a rank has to say, where others read it.
struct RankOwn {
  std::shared_ptr<Buffer> here;      ///< on the host
  std::shared_ptr<std::byte> there;  ///< in the device's memory, if it has some: where ops write it
};

/// What tensor-parallel ranks tell each other at one cut of a step, as one of them sees it. All are
/// by rank; a rank's own entries are empty.
struct RankExchange {
  static constexpr std::size_t kAnyBytes = SIZE_MAX;  ///< some, which say themselves how many

  std::uint32_t index = 0;         ///< of the step's exchanges: all ranks count alike
  std::vector<Payload> to;         ///< empty: nothing goes there
  std::vector<std::size_t> bytes;  ///< that come from there; 0: nothing comes
  std::vector<Payload> from;       ///< what came, when the step goes on
  std::shared_ptr<RankOwn> own;    ///< what this rank has of it, for others to read
  std::size_t own_bytes = 0;       ///< of that
};

/// What goes to a rank at a cut for experts (RankExperts).
struct RankSection {
  std::size_t at = 0, bytes = 0;  ///< in what this rank sends
  std::int64_t first_row = 0, rows = 0;
  std::size_t first_pair = 0, pairs = 0;  ///< of Step::here
};

}  // namespace troupe
