#include "tools/troupe/nccl_choice.h"

namespace troupe::cli {

Result<std::optional<nccl::NodeOptions>> choose_nccl(transport::FabricKind kind,
                                                     const std::vector<Device::Options>& devices,
                                                     const std::string& library) {
  if (kind != transport::FabricKind::kNccl) return std::optional<nccl::NodeOptions>();
  nccl::NodeOptions options;
  if (!library.empty()) options.paths = {library, library};
  for (const Device::Options& device : devices) {
    if (device.kind != "cuda" && library.empty())
      return refused("--fabric nccl: NCCL moves the memory of GPUs, and device " +
                     std::to_string(device.index) + " of a worker is a " + device.kind +
                     " device; leave --fabric out, or use GPUs.");
    options.gpus.push_back(device.number);
  }
  return std::optional(std::move(options));
}

}  // namespace troupe::cli
