#include "runtime/numa.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/buffer.h"
#include "runtime/host.h"
#include "runtime/huge_memory.h"

using namespace troupe;

namespace {

/// What a system tells of its nodes, as files.
class Told {
 public:
  Told() : folder_(std::filesystem::temp_directory_path() / ("numa-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Told() { std::filesystem::remove_all(folder_); }

  void node(const std::string& name, const std::string& processors, const std::string& memory) {
    std::filesystem::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "cpulist") << processors << '\n';
    std::ofstream(folder_ / name / "meminfo") << memory;
  }
  std::string folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

int this_processor() { return numa_nodes("/nowhere").front().processors.front(); }

}  // namespace

TEST_CASE("nodes are what the system tells of them") {
  Told told;
  const std::string own = std::to_string(this_processor());
  told.node("node1", own, "Node 1 MemTotal:       2048 kB\nNode 1 MemFree:  1 kB\n");
  told.node("node0", "0-3,8000-8191", "Node 0 MemTotal: 4 kB\n");
  told.node("node7", "", "Node 7 MemTotal: 4 kB\n");  // memory without processors
  told.node("node12", "0-,x", "");
  told.node("nodes", own, "");
  const std::vector<NumaNode> nodes = numa_nodes(told.folder());
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].number == 0);
  for (const int p : nodes[0].processors) CHECK(p < 8000);  // those that this process may use
  CHECK(nodes[0].memory_bytes == 4096);
  CHECK(nodes[1].number == 1);
  CHECK(nodes[1].processors == std::vector{std::stoi(own)});
  CHECK(nodes[1].memory_bytes == 2048u << 10);
}

TEST_CASE("a system that tells of none has one, of all processors") {
  const std::vector<NumaNode> nodes = numa_nodes("/nowhere");
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].number == 0);
  CHECK(static_cast<int>(nodes[0].processors.size()) == host_processors());
}

TEST_CASE("a thread runs where it is told") {
  std::thread([] {
    CHECK(run_on({}).ok());
    REQUIRE(run_on({this_processor()}).ok());
    CHECK(host_processors() == 1);
    CHECK(sched_getcpu() == this_processor());
    const Status nowhere = run_on({8191});
    REQUIRE(!nowhere.ok());
    CHECK(nowhere.error().message.find("cannot be bound") != std::string::npos);
  }).join();
}

TEST_CASE("large buffers come from the node of the thread's scope, and go back there") {
  constexpr std::size_t kBytes = 1u << 20;
  const int node = numa_nodes().front().number;
  HugeMemory& there = HugeMemory::of_process(node);
  const std::size_t before = there.mapped_bytes();
  CHECK(NumaScope::current() == kAnyNumaNode);
  {
    Buffer kept;
    {
      const NumaScope near(node);
      CHECK(NumaScope::current() == node);
      kept = Buffer::in_huge_pages(kBytes);
      {
        const NumaScope anywhere(kAnyNumaNode);
        const Buffer other = Buffer::in_huge_pages(kBytes);
        CHECK(other.size() == kBytes);
      }
      std::thread([] { CHECK(NumaScope::current() == kAnyNumaNode); }).join();
    }
    CHECK(NumaScope::current() == kAnyNumaNode);
    CHECK(there.mapped_bytes() > before);
  }  // freed outside of the scope
  CHECK(there.mapped_bytes() == before);
}
