#include "runtime/version.h"
#include "transport/protocol.h"

/// These stand in the place of runtime/version.cpp and transport/own_protocol.cpp: the linker takes
/// from the libraries only what is not there yet. So the program is like one that was built before
/// the newest protocol, whose kinds of messages and records it does not know.
namespace troupe {

const char* const kVersion = "0.1.0-older";
const ProtocolRange kProtocol{6, 6};

}  // namespace troupe
