#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/device/device.h"
#include "runtime/cpu_family.h"
#include "runtime/result.h"
#include "tools/troupe/doubles.h"

namespace troupe::cli {

/// What computes, as the flags of worker, up and generate say it.
struct DeviceFlags {
  std::string device = "auto";
  std::string device_memory = "0";
  std::string expert_tier_memory = "0";
  std::string cpu_family = "auto";
  int threads = 0;
  Doubles doubles = {};  ///< no flag: what this program has of them
};

/// A share of this machine's processors and memory, as a device.
Device::Options whole_machine(int workers);
/// Errors name the flag.
Result<CpuFamily> resolve_cpu_family(const std::string& name);
/// The devices that a worker computes with, by index. Of several workers on this machine, that one
/// gets its share of them, and of the processors and the memory that the flags leave open.
Result<std::vector<Device::Options>> resolve(const DeviceFlags& flags, int worker = 0,
                                             int workers = 1);
/// What --device says for just these.
std::string list_of(const std::vector<Device::Options>& devices);
/// Of the second tier.
Result<std::uint64_t> resolve_tier(const DeviceFlags& flags);

}  // namespace troupe::cli
