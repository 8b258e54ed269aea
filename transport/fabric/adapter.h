#pragma once

#include <string>

#include "transport/link_messages.h"

namespace troupe::transport {

/// What the kernel says of the device behind an interface, in files of `folder`, as /sys/class/net
/// has them. Nothing is known of an interface that has none, such as a bridge.
FabricAdapter adapter_behind(const std::string& folder, const std::string& interface);

/// `known`, and what it lacks as `other` has it; as words that can be sent and shown, whatever the
/// drivers say.
FabricAdapter completed(FabricAdapter known, const FabricAdapter& other);

}  // namespace troupe::transport
