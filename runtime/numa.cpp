#include "runtime/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "runtime/host.h"

namespace troupe {
namespace {

/// The kernel has no more.
constexpr int kNumaNodesMax = 1024;
constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end != text.end() || value < 0) return std::nullopt;
  return value;
}

/// "0-3,8"; what is no such list counts for nothing.
std::vector<int> processors_of(std::string_view list) {
  std::vector<int> found;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view range = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = number(range.substr(0, dash));
    const auto last = dash < range.size() ? number(range.substr(dash + 1)) : first;
    if (!first || !last || *last >= kProcessorsMax) return {};
    for (int p = *first; p <= *last; ++p) found.push_back(p);
  }
  return found;
}

std::uint64_t memory_of(const std::filesystem::path& node) {
  std::ifstream file(node / "meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "MemTotal:" && file >> kib) return kib << 10;
  }
  return 0;
}

thread_local int node_of_thread = kAnyNumaNode;

}  // namespace

std::vector<NumaNode> numa_nodes(const std::string& folder) {
  const std::vector<int> allowed = allowed_processors();
  std::vector<NumaNode> nodes;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const auto node = number(std::string_view(name).substr(4));
    if (!node || *node >= kNumaNodesMax) continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    std::vector<int> processors = processors_of(list);
    std::erase_if(processors, [&](int p) { return !std::ranges::binary_search(allowed, p); });
    if (!processors.empty())
      nodes.push_back({*node, std::move(processors), memory_of(entry.path())});
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  if (!nodes.empty()) return nodes;
  return {{0, allowed, 0}};
}

Status run_on(const std::vector<int>& processors) {
  if (processors.empty()) return {};
  std::array<unsigned long, kProcessorsMax / kWordBits> set{};
  for (const int p : processors)
    set[static_cast<std::size_t>(p / kWordBits)] |= 1UL << (p % kWordBits);
  if (syscall(SYS_sched_setaffinity, 0, sizeof set, set.data()) == 0) return {};
  return unavailable(std::string("A thread cannot be bound to its processors: ") +
                     std::strerror(errno) + ".");
}

NumaScope::NumaScope(int node) : before_(node_of_thread) { node_of_thread = node; }
NumaScope::~NumaScope() { node_of_thread = before_; }
int NumaScope::current() { return node_of_thread; }

bool place_pages(void* begin, std::size_t bytes, int node) {
  if (node < 0 || node >= kNumaNodesMax) return false;
  std::array<unsigned long, kNumaNodesMax / kWordBits> nodes{};
  nodes[static_cast<std::size_t>(node / kWordBits)] = 1UL << (node % kWordBits);
  return syscall(SYS_mbind, begin, bytes, MPOL_PREFERRED, nodes.data(), kNumaNodesMax, 0) == 0;
}

}  // namespace troupe
