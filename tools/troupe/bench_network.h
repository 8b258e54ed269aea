#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::cli {

/// What `troupe bench network` is told.
struct NetworkOptions {
  std::string node;
  std::uint32_t pairs = 0;
  std::vector<std::string> sizes{"64KiB", "1MiB"};
  bool while_serving = false;
  bool one_at_a_time = false;
  bool json = false;
};

/// Has the head that STATE/join leads to measure, and prints what comes of it; the exit code.
int bench_network(const std::string& state_dir, const NetworkOptions& o);

}  // namespace troupe::cli
