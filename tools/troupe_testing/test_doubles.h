#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/doubles/spoilt_backend.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "tools/troupe/doubles.h"
#include "tools/troupe_testing/breakage.h"

namespace troupe::cli {

/// The twin of a GPU, and whatever else TROUPE_TEST_* of the environment ask for (tests/README.md).
class TestDoubles {
 public:
  /// kInvalidArgument: the environment says what there is not.
  static Result<std::unique_ptr<TestDoubles>> from_environment();
  TestDoubles(const TestDoubles&) = delete;
  TestDoubles& operator=(const TestDoubles&) = delete;

  /// It must outlive them, and what is made of them.
  Doubles doubles();

 private:
  TestDoubles() = default;

  Result<std::vector<Device::Options>> twins_of(const DeviceList& list, int worker,
                                                int workers) const;
  void change(WorkerOptions& options);
  void inject(Device::Options& device);
  void break_kernels(WorkerOptions& options);

  std::string numa_nodes_, nccl_, nvml_;
  std::optional<TokenId> crash_token_, head_crash_token_;
  kernels::InjectedFailure injected_;
  std::optional<Breakage> breakage_;

  std::optional<kernels::Backend> failing_;
  std::list<kernels::SpoiltBackend> spoilt_;  ///< by device
  std::atomic<TimePoint> broken_from_{TimePoint::max()};
};

}  // namespace troupe::cli
