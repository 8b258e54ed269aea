#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/chosen_mlp.h"
#include "kernels/stream.h"

namespace troupe {

class ForwardListener;
struct Step;

/// What the gates of a step chose where all of a layer's experts are on the device: it keeps that
/// for itself, and the host, which would have to wait for it at each layer, hears of it when the
/// step is done.
class ChosenLayers {
 public:
  /// Of up to so many layers, of so many pairs of a row and an expert each.
  void begin(const kernels::Stream& stream, std::size_t layers, std::size_t pairs);
  /// The layer that the step is at.
  kernels::ChosenRows next(const Step& step);
  /// Waits for the device, unless there were none.
  void tell(kernels::Stream& stream, ForwardListener& listener) const;

 private:
  std::int32_t* numbers() const { return reinterpret_cast<std::int32_t*>(room_.data()); }

  kernels::Stream::Room room_;  // [most] experts read, then [pairs] ids of each layer
  std::size_t most_ = 0, pairs_ = 0;
  std::vector<std::int32_t> layers_;
};

}  // namespace troupe
