#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {

std::vector<std::string> made_seeds() { return {}; }

}  // namespace troupe::fuzz
