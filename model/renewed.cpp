#include "model/renewed.h"

#include <utility>

namespace troupe {

Result<RenewedCheckpoint> renewed(const std::shared_ptr<const Checkpoint>& known) {
  const Status same = known->unchanged();
  if (same.ok()) return RenewedCheckpoint{known, {}};
  // Away for the moment: what is in its place then is looked at then.
  if (same.error().code != ErrorCode::kCorrupt) return same.error();
  auto opened = Checkpoint::open(known->folder());
  if (!opened) return opened.error();
  if ((*opened)->hash() != known->hash())
    return corrupt(same.error().message +
                   "; and it is another checkpoint now: restore it, or stop the cluster and start "
                   "it with the other one");
  return RenewedCheckpoint{std::move(*opened), same.error().message};
}

}  // namespace troupe
