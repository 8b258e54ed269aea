#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/type_id.hpp>

#include "actors/base/host.h"

// What CAF carries between the actors of one process. Nothing of it ever leaves the process:
// between nodes messages travel as Cap'n Proto, so none of these has a serialised form.
CAF_BEGIN_TYPE_ID_BLOCK(troupe_base, first_custom_type_id + 100)
CAF_ADD_TYPE_ID(troupe_base, (troupe::Mail))
CAF_ADD_TYPE_ID(troupe_base, (troupe::Life))
CAF_ADD_ATOM(troupe_base, troupe, wake_atom, "wake")
CAF_ADD_ATOM(troupe_base, troupe, end_atom, "end")
CAF_ADD_ATOM(troupe_base, troupe, start_atom, "start")
CAF_END_TYPE_ID_BLOCK(troupe_base)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Mail)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Life)
