#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// One exchange of a step among its tensor-parallel ranks, as one of them sees it. By rank; a
/// rank's own entries are empty.
///
/// Every collective of the forward pass is one of these (model/forward/rank_cuts.h): an all-gather
/// sends everybody the same, a reduce-scatter everybody the rows that he is to add up. Sums are
/// never made on the way: whoever gets the parts adds them, in the order of the slices.
struct PartsExchange {
  StepId step;
  std::uint32_t index = 0;         ///< of the step's: all ranks count alike, from 1
  std::vector<Payload> to;         ///< empty: nothing goes there
  std::vector<std::size_t> bytes;  ///< that come from there; 0: nothing comes; kAny: some
  static constexpr std::size_t kAny = SIZE_MAX;
};

/// What tensor-parallel ranks tell each other with, as one rank holds it. No call blocks.
/// Thread-safe.
///
/// It need not notice that a rank is gone: who learns that gives the step up (`forget`). A rank
/// whose step nobody gives up waits for as long as the step may take.
class Collective {
 public:
  virtual ~Collective() = default;

  /// What came, by rank. kCorrupt: a part is not as long as it should be. kUnavailable,
  /// kDeadlineExceeded: what carries them broke.
  using Done = std::function<void(Result<std::vector<Payload>>)>;
  /// Parts reach the others as they are, also what only a device has: all are in this process.
  virtual bool by_reference() const { return false; }
  /// Sends this rank's parts, in place: their memory stays as it is while somebody holds them.
  /// `done` hears once, from any thread or within the call, when all parts are here. One exchange
  /// of a step at a time.
  virtual void start(PartsExchange exchange, Done done) = 0;

  /// Whoever waits for that step hears nothing any more, and what still comes for it is dropped.
  /// True: somebody waited.
  virtual bool forget(StepId step) = 0;
  /// The same of all steps, those to come too.
  virtual void close() = 0;

  /// A message from another rank did not arrive, or will not: one of them cannot be reached. The
  /// steps under way are given up; what must not wait for them either ends.
  virtual void lost(const std::string& why) { (void)why; }
};

}  // namespace troupe
