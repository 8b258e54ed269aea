#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/cpu_family.h"
#include "runtime/limits.h"
#include "runtime/numa.h"

namespace troupe {

namespace kernels {
struct Backend;
}

/// What a device is: some processors, or a GPU.
struct DeviceOptions {
  std::uint32_t index = 0;
  std::string kind = "cpu";
  int number = 0;                  ///< among the machine's of its kind
  std::string bus_id = {};         ///< of a GPU that its driver is asked about; empty: of none
  std::string name = {};           ///< of the product, for people; empty: not known
  std::string architecture = {};   ///< of tensor cores: "sm_90"; empty: it has none
  std::uint64_t memory_total = 0;  ///< bytes it may use for weights, cache and scratch
  int threads = 1;
  /// Of a NUMA node: where it computes and what its weights are in. None: on any, in any.
  std::vector<int> processors = {};
  int numa_node = kAnyNumaNode;
  CpuFamily cpu_family = supported_cpu_families().back();
  /// What computes, and outlives it; null: what this program has for its kind.
  const kernels::Backend* backend = nullptr;
  /// Whether it computes what it must is asked so often, a part of it each second.
  Duration known_answers_every = limits::kKnownAnswersEvery;
};

}  // namespace troupe
