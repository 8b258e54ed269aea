#include "transport/protocol.h"

namespace troupe {

const ProtocolRange kProtocol{6, 7};

}  // namespace troupe
