#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "actors/device/device.h"
#include "kernels/accelerator.h"
#include "runtime/log.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// What `work`, inside of a job, returns; or why it did not. What a kernel throws ends the work and
/// the device, not the node: it will not be better the next time. Memory may only be short for now.
/// `what` begins the sentence: "A step".
template <class Work>
Status guarded(Device& device, std::string_view what, const Work& work) {
  const auto done = [&]() -> Status {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      logger().error("{} could not be computed: memory is short.", what);
      return resource_exhausted(std::string(what) + " could not be computed: memory is short.");
    }
  };
  try {
    if (const std::string failed = device.failed(); !failed.empty())
      return unavailable("The device has failed: " + failed + ".");
    Status status = done();
    if (!status.ok() && status.error().code == ErrorCode::kResourceExhausted) device.settle();
    return status;
  } catch (const ThreadPool::Interrupted& e) {
    return unavailable(std::string(what) + " was given up: " + e.what() + ".");
  } catch (const kernels::OtherFailed& e) {
    return unavailable(std::string(what) + " could not be computed: " + e.what() + ".");
  } catch (const std::exception& e) {
    device.fail(e.what());
    return unavailable(std::string(what) + " could not be computed: " + e.what() + ".");
  }
}

}  // namespace troupe
