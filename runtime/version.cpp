#include "runtime/version.h"

namespace troupe {

/// As in CMakeLists.txt, which a test holds it to.
const char* const kVersion = "0.1.0";

}  // namespace troupe
