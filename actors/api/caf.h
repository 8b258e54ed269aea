#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <cstdint>

#include "actors/api/cluster.h"

// What the embedding API's actors say. These messages stay within the process.
CAF_BEGIN_TYPE_ID_BLOCK(troupe_api, first_custom_type_id + 200)
CAF_ADD_TYPE_ID(troupe_api, (troupe::GenerationRequest))
CAF_ADD_TYPE_ID(troupe_api, (troupe::GenerationEvent))
CAF_ADD_TYPE_ID(troupe_api, (troupe::ClusterEvent))
CAF_ADD_ATOM(troupe_api, troupe, cancel_atom, "cancel")
CAF_END_TYPE_ID_BLOCK(troupe_api)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::GenerationRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::GenerationEvent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ClusterEvent)

namespace troupe {

/// Generates for actors.
using Generator = caf::typed_actor<
    /// Takes a request and answers with its number; `listener` then gets (number, GenerationEvent)
    /// messages until one has `request_done` or an error. A request that is refused is an error
    /// answer. When the listener dies, its request is cancelled.
    caf::replies_to<GenerationRequest, caf::actor>::with<std::uint64_t>,
    /// The request with that number is no longer wanted.
    caf::reacts_to<cancel_atom, std::uint64_t>>;

/// Spawns it in cluster.system(). It ends when its last handle goes; the cluster must outlive it.
Generator spawn_generator(Cluster& cluster);

/// Sends every cluster event from now on to `listener`, as a ClusterEvent message.
Status subscribe(Cluster& cluster, const caf::actor& listener);

}  // namespace troupe
