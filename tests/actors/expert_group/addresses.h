#pragma once

#include "actors/interfaces.h"

namespace troupe {

/// Who speaks to whom in the tests of this folder.
inline const Address kShard{NodeId{2}, Incarnation{20}, {ActorKind::kLayerShard, 3}};
inline const Ref<ExpertGroupInbox> kGroup{NodeId{1}, Incarnation{10}};

}  // namespace troupe
