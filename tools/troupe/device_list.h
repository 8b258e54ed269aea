#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe::cli {

/// What --device asks for: "auto", "cpu", "cpu:0,1", "cuda", "cuda:0,2"; of a program with doubles
/// "cuda-twin" too.
struct DeviceList {
  enum class Kind : std::uint8_t { kAuto, kCpu, kCuda, kCudaTwin };
  Kind kind = Kind::kCpu;
  /// NUMA nodes of `cpu`, GPUs of `cuda`, names of made-up ones of `cuda-twin`; none: all there is.
  std::vector<int> numbers;
};

/// kInvalidArgument, which names the flag.
Result<DeviceList> parse_device_list(const std::string& text);

/// As it is written.
std::string to_string(const DeviceList& list);

/// Of several workers on one machine, what the one of that number gets: each its own of the
/// numbers. kInvalidArgument: there are not enough for all.
Result<DeviceList> share_of(const DeviceList& list, std::size_t worker, std::size_t workers);

}  // namespace troupe::cli
