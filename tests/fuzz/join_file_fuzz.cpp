#include <cstddef>
#include <cstdint>
#include <string_view>

#include "actors/control/credentials.h"

/// What is read must be written so that it reads the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto join = troupe::parse_join_file(text, "join");
  if (join.ok()) {
    const auto again = troupe::parse_join_file(troupe::format_join_file(*join), "join");
    if (!again.ok() || again->heads != join->heads) __builtin_trap();
  }
  (void)troupe::parse_host_port(text);
  return 0;
}
