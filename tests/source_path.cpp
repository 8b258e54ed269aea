#include "tests/source_path.h"

namespace troupe::testing {

std::string source_path(const std::string& relative) {
  return TROUPE_SOURCE_DIR "/" + relative;
}

}  // namespace troupe::testing
