#pragma once

#include <string>

namespace troupe::testing {

/// A file or folder of the source tree, given from its root: "tests/golden/v3".
std::string source_path(const std::string& relative);

}  // namespace troupe::testing
