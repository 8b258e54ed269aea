#include "tools/troupe/device_flags.h"

#include <algorithm>

#include "kernels/cuda/gpus.h"
#include "runtime/byte_size.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "runtime/numa.h"
#include "tools/troupe/device_list.h"

namespace troupe::cli {
namespace {

/// One of the machine's, or one a NUMA node that is named, with its processors and its memory.
Result<std::vector<Device::Options>> processors_of(const DeviceList& list, int workers,
                                                   const Doubles& doubles) {
  if (list.numbers.empty()) return std::vector{whole_machine(workers)};
  const std::string& told = doubles.numa_nodes;
  const std::vector<NumaNode> nodes = told.empty() ? numa_nodes() : numa_nodes(told);
  std::string known;
  for (const NumaNode& node : nodes)
    known += (known.empty() ? "" : ", ") + std::to_string(node.number);
  std::vector<Device::Options> devices;
  for (const int number : list.numbers) {
    const auto node = std::ranges::find(nodes, number, &NumaNode::number);
    if (node == nodes.end())
      return invalid_argument("--device " + to_string(list) + ": there is no NUMA node " +
                              std::to_string(number) +
                              " whose processors this process may use, only " + known + ".");
    Device::Options& device = devices.emplace_back(whole_machine(1));
    device.threads = static_cast<int>(node->processors.size());
    device.processors = node->processors;
    device.numa_node = number;
    if (node->memory_bytes > 0) device.memory_total = node->memory_bytes;
  }
  return devices;
}

/// What a GPU's own needs leave of its memory.
std::uint64_t for_models(std::uint64_t gpu_memory) { return gpu_memory / 10 * 9; }

/// Those that are named, or all: of several workers, each gets its own.
Result<std::vector<Device::Options>> gpus_of(const DeviceList& list,
                                             const std::vector<kernels::Gpu>& gpus, int worker,
                                             int workers) {
  std::vector<int> numbers = list.numbers;
  if (numbers.empty())
    for (int i = worker; i < static_cast<int>(gpus.size()); i += workers) numbers.push_back(i);
  if (numbers.empty())
    return invalid_argument("--device " + to_string(list) + ": this machine has " +
                            std::to_string(gpus.size()) + " GPUs for " + std::to_string(workers) +
                            " workers; give --workers " + std::to_string(gpus.size()) + ".");
  std::vector<Device::Options> devices;
  for (const int number : numbers) {
    if (number >= static_cast<int>(gpus.size()))
      return invalid_argument("--device " + to_string(list) + ": there is no GPU " +
                              std::to_string(number) + ", only 0 to " +
                              std::to_string(gpus.size() - 1) + ".");
    const kernels::Gpu& gpu = gpus[static_cast<std::size_t>(number)];
    Device::Options& device = devices.emplace_back();
    device.kind = "cuda";
    device.number = number;
    device.name = gpu.name;
    device.architecture = gpu.architecture;
    device.bus_id = gpu.bus_id;
    device.memory_total = for_models(gpu.memory_bytes);
  }
  return devices;
}

Result<std::vector<Device::Options>> devices_of(const DeviceList& list, int worker, int workers,
                                                const Doubles& doubles) {
  switch (list.kind) {
    case DeviceList::Kind::kAuto: {
      const auto gpus = kernels::gpus();
      if (!gpus.ok()) return processors_of(list, workers, doubles);
      if (static_cast<int>(gpus->size()) >= workers) return gpus_of(list, *gpus, worker, workers);
      if (worker == 0)
        logger().info(
            "{} workers are for {} GPUs here, so they compute on processors; --workers {} "
            "uses the GPUs",
            workers, gpus->size(), gpus->size());
      return processors_of(list, workers, doubles);
    }
    case DeviceList::Kind::kCpu:
      return processors_of(list, workers, doubles);
    case DeviceList::Kind::kCuda: {
      const auto gpus = kernels::gpus();
      if (!gpus.ok())
        return refused("--device " + to_string(list) + ": " + gpus.error().message + ".");
      return gpus_of(list, *gpus, worker, workers);
    }
    case DeviceList::Kind::kCudaTwin:
      if (doubles.twins) return doubles.twins(list, worker, workers);
      return invalid_argument("--device " + to_string(list) +
                              " is a test double that build/troupe-testing has, not this program: "
                              "use cpu or cuda.");
  }
  return internal_error("--device names a kind that is not known.");
}

}  // namespace

Device::Options whole_machine(int workers) {
  Device::Options device;
  device.name = processor_name();
  device.threads = std::max(1, host_processors() / workers);
  device.memory_total = host_memory_bytes() / static_cast<std::uint64_t>(workers);
  return device;
}

Result<CpuFamily> resolve_cpu_family(const std::string& name) {
  const auto& have = supported_cpu_families();
  if (name == "auto") return have.back();
  const auto family = parse_cpu_family(name);
  if (!family)
    return invalid_argument("--cpu-family must be auto, avx2, avx512 or amx, not '" + name + "'.");
  if (std::find(have.begin(), have.end(), *family) != have.end()) return *family;
  return invalid_argument("--cpu-family " + name + ": this processor has no such instructions; " +
                          std::string(to_string(have.back())) + " is its best.");
}

std::string list_of(const std::vector<Device::Options>& devices) {
  DeviceList list = *parse_device_list(devices.front().kind);
  const bool cpu = list.kind == DeviceList::Kind::kCpu;
  if (!cpu || devices.front().numa_node != kAnyNumaNode)
    for (const Device::Options& device : devices)
      list.numbers.push_back(cpu ? device.numa_node : device.number);
  return to_string(list);
}

Result<std::uint64_t> resolve_tier(const DeviceFlags& flags) {
  auto memory = parse_byte_size(flags.expert_tier_memory);
  if (!memory.ok()) return invalid_argument("--expert-tier-memory: " + memory.error().message);
  return *memory;
}

Result<std::vector<Device::Options>> resolve(const DeviceFlags& flags, int worker, int workers) {
  const auto asked = parse_device_list(flags.device);
  if (!asked.ok()) return asked.error();
  const auto list =
      share_of(*asked, static_cast<std::size_t>(worker), static_cast<std::size_t>(workers));
  if (!list.ok()) return list.error();
  if (flags.threads < 0 || flags.threads > limits::kThreadsMax)
    return invalid_argument("--threads must be from 0 (all processors) to " +
                            std::to_string(limits::kThreadsMax) + ".");
  const auto memory = parse_byte_size(flags.device_memory);
  if (!memory.ok()) return invalid_argument("--device-memory: " + memory.error().message);
  const auto family = resolve_cpu_family(flags.cpu_family);
  if (!family.ok()) return family.error();
  auto devices = devices_of(*list, worker, workers, flags.doubles);
  if (!devices.ok()) return devices.error();
  for (std::size_t i = 0; i < devices->size(); ++i) {
    Device::Options& device = (*devices)[i];
    device.index = static_cast<std::uint32_t>(i);
    device.cpu_family = *family;
    if (flags.threads > 0) device.threads = flags.threads;
    if (*memory > 0) device.memory_total = *memory;
  }
  return devices;
}

}  // namespace troupe::cli
