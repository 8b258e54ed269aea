#include "transport/nccl/node.h"

#include <utility>

namespace troupe::nccl {

Node::Node(std::shared_ptr<const Library> library, std::vector<std::shared_ptr<Device>> devices,
           NodeOptions options)
    : library_(std::move(library)),
      devices_(std::move(devices)),
      watchdog_({.on_stuck = std::move(options.on_stuck)}) {}

Result<std::unique_ptr<Node>> Node::open(NodeOptions options) {
  auto library = Library::load(options.paths.nccl);
  if (!library.ok()) return library.error();
  auto driver = Driver::load(options.paths.cuda);
  if (!driver.ok()) return driver.error();
  std::vector<std::shared_ptr<Device>> devices;
  for (const int gpu : options.gpus) {
    auto device = Device::open(*driver, gpu);
    if (!device.ok()) return device.error();
    devices.push_back(std::move(*device));
  }
  return std::unique_ptr<Node>(
      new Node(std::move(*library), std::move(devices), std::move(options)));
}

}  // namespace troupe::nccl
