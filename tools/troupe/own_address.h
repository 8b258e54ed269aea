#pragma once

#include <string>

namespace troupe::cli {

/// The numeric address by which other machines are likely to reach this one: the one that leads
/// out, else the first that is no loopback; loopback if there is nothing else. Sends nothing.
std::string own_address();

}  // namespace troupe::cli
