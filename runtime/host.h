#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// This machine's name.
std::string host_name();
/// Its memory in bytes.
std::uint64_t host_memory_bytes();
/// Processors that this process may use.
int host_processors();

}  // namespace troupe
