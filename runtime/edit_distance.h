#pragma once

#include <cstddef>
#include <string_view>

namespace troupe {

/// The number of single-character edits that turn one word into the other; neighbours that have
/// changed places are one. Takes time as the product of their lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace troupe
