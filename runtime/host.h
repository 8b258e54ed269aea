#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// This machine's name.
std::string host_name();
/// What its processor is sold as; empty: not known.
std::string processor_name();
/// Its memory in bytes.
std::uint64_t host_memory_bytes();
/// No Linux has more.
inline constexpr int kProcessorsMax = 8192;
/// Processors that the calling thread may use, by number; none where the system does not tell.
std::vector<int> allowed_processors();
/// How many they are, at least 1.
int host_processors();
/// The address, as text, that this machine has on the network towards `host`; loopback if it cannot
/// be told. Sends nothing. Resolves the name, which may take as long as the resolver wants.
std::string local_address_towards(const std::string& host, std::uint16_t port);

}  // namespace troupe
