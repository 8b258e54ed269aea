#pragma once

#include <cstdint>

#include "transport/message.h"

namespace troupe {

/// What an undeliverable message was about, so that its sender knows which wait has ended.
std::uint64_t reference_of(const Message& message);

/// The answer to the sender of a message that did not arrive.
Undeliverable undeliverable(const Envelope& envelope, Error why);

}  // namespace troupe
