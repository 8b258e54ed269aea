#pragma once

#include <memory>
#include <string>

#include "model/checkpoint.h"
#include "runtime/result.h"

namespace troupe {

struct RenewedCheckpoint {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::string why;  ///< opened afresh, because of that; empty: it is the one that was known
};

/// The checkpoint as its files are now: the same as long as they are those that it opened, else
/// opened afresh. Nothing that was read of it before is said to be the same: whoever reads it
/// digests what comes. kCorrupt if it has become another checkpoint, with other headers.
Result<RenewedCheckpoint> renewed(const std::shared_ptr<const Checkpoint>& known);

}  // namespace troupe
