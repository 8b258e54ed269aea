#pragma once

#include <vector>

#include "transport/message.h"

namespace troupe {

/// At least one message of every kind, with no field at its default.
std::vector<Envelope> message_samples();

}  // namespace troupe
