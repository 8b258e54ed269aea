#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace troupe::fuzz {

/// A changed copy of one of `seeds`, at most `bytes_max` long: bits flipped, bytes replaced,
/// removed, doubled, numbers swapped for awkward ones, pieces taken from other seeds. `seeds` must
/// not be empty.
std::string mutate(const std::vector<std::string>& seeds, std::size_t bytes_max,
                   std::mt19937_64& random);

}  // namespace troupe::fuzz
