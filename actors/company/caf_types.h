#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/type_id.hpp>
#include <functional>

#include "transport/message.h"

namespace troupe {

/// Work for inside an actor.
using ActorCall = std::function<void()>;

}  // namespace troupe

// What CAF carries between the actors of one process. Nothing of it ever leaves the process:
// between nodes messages travel as Cap'n Proto, so none of these has a serialised form.
CAF_BEGIN_TYPE_ID_BLOCK(troupe_company, first_custom_type_id + 100)
CAF_ADD_TYPE_ID(troupe_company, (troupe::Envelope))
CAF_ADD_TYPE_ID(troupe_company, (troupe::ActorCall))
CAF_ADD_ATOM(troupe_company, troupe, wake_atom, "wake")
CAF_END_TYPE_ID_BLOCK(troupe_company)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Envelope)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ActorCall)
