#pragma once

#include <set>
#include <string>
#include <string_view>

namespace troupe {

/// The rules that no text satisfies, for each way through them leads back into one of them. The
/// rules must be what GrammarWriter writes, one a line.
std::set<std::string> endless_rules(std::string_view rules);

}  // namespace troupe
