#pragma once

#include <set>
#include <string>
#include <string_view>

namespace troupe {

/// The members of an object that can be nothing but texts, by its JSON schema: some models write
/// these without quotes. None where that is hard to see.
std::set<std::string> text_arguments(std::string_view schema);

}  // namespace troupe
