#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "actors/device/device.h"
#include "runtime/log.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// As Device::settle(); a device that fails then counts as failed.
inline void settle(Device& device) {
  try {
    device.settle();
  } catch (const std::exception& e) {
    device.fail(e.what());
  }
}

/// What `work`, inside of a job, returns; or why it did not. What a kernel throws ends the work and
/// the device, not the node: it will not be better the next time. Memory may only be short for now.
/// `what` begins the sentence: "A step".
template <class Work>
Status guarded(Device& device, std::string_view what, const Work& work) {
  try {
    if (const std::string failed = device.failed(); !failed.empty())
      return unavailable("The device has failed: " + failed + ".");
    Status done = work();
    if (!done.ok() && done.error().code == ErrorCode::kResourceExhausted) device.settle();
    return done;
  } catch (const ThreadPool::Interrupted& e) {
    return unavailable(std::string(what) + " was given up: " + e.what() + ".");
  } catch (const std::bad_alloc&) {
    logger().error("{} could not be computed: memory is short.", what);
    settle(device);
    return resource_exhausted(std::string(what) + " could not be computed: memory is short.");
  } catch (const std::exception& e) {
    device.fail(e.what());
    return unavailable(std::string(what) + " could not be computed: " + e.what() + ".");
  }
}

}  // namespace troupe
