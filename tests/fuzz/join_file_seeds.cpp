#include "actors/control/credentials.h"
#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {

std::vector<std::string> made_seeds() {
  const auto made = make_cluster_credentials();
  if (!made.ok()) return {};
  return {format_join_file({.heads = {"10.0.0.1:6379", "[::1]:6379"}, .worker = made->worker}),
          "10.0.0.1:6379", "[fe80::1%eth0]:80"};
}

}  // namespace troupe::fuzz
