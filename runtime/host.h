#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// This machine's name.
std::string host_name();
/// What its processor is sold as; empty: not known.
std::string processor_name();
/// Its memory in bytes.
std::uint64_t host_memory_bytes();
/// Processors that this process may use.
int host_processors();
/// The address, as text, that this machine has on the network towards `host`; loopback if it cannot
/// be told. Sends nothing. Resolves the name, which may take as long as the resolver wants.
std::string local_address_towards(const std::string& host, std::uint16_t port);

}  // namespace troupe
