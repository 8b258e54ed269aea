#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <cstdint>

#include "actors/api/cluster.h"

// For programs with actors of their own. caf.h takes a few seconds to compile: include it where
// actors are, and cluster.h everywhere else.

// What the embedding API's actors say. These messages stay within the process. Troupe's message
// types use CAF's numbers from first_custom_type_id + 100 to + 299; a program's own begin at + 300.
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
    /// answer (from a cluster that was connected to, an event with the error). The events may begin
    /// before the answer. When the listener dies, its requests are cancelled.
    caf::replies_to<GenerationRequest, caf::actor>::with<std::uint64_t>,
    /// The request with that number is no longer wanted.
    caf::reacts_to<cancel_atom, std::uint64_t>>;

/// Spawns it in cluster.system(). It ends when its last handle goes, which must be before the
/// cluster ends: CAF waits for it.
Generator spawn_generator(Cluster& cluster);

/// Sends every cluster event from now on to `listener`, as a ClusterEvent message, and keeps it
/// alive meanwhile. As the actor's mailbox has no bound of ours, it should not fall far behind.
Status subscribe(Cluster& cluster, const caf::actor& listener);

}  // namespace troupe
