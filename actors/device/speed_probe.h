#pragma once

#include <memory>

#include "kernels/stream.h"
#include "kernels/weight.h"
#include "runtime/clock.h"

namespace troupe {

/// A small fixed piece of work for an accelerator: products of one row, one after the other, some
/// 50 us of a GPU. Used on the thread that the accelerator's queue is used from.
class SpeedProbe {
 public:
  /// Takes its memory. Throws as kernels do.
  explicit SpeedProbe(const kernels::Stream::Options& accelerator);

  /// How long the accelerator takes, by its own clock. Waits for it. Throws as kernels do.
  Duration run();

 private:
  void multiply();

  kernels::Stream stream_;
  kernels::Weight weight_;
  std::shared_ptr<std::byte> x_, y_;
};

}  // namespace troupe
