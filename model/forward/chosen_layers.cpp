#include "model/forward/chosen_layers.h"

#include <span>

#include "model/forward/forward.h"

namespace troupe {

void ChosenLayers::begin(const kernels::Stream& stream, std::size_t layers, std::size_t pairs) {
  layers_.clear();
  most_ = layers;
  pairs_ = pairs;
  room_.at_least(stream, layers * (1 + pairs) * sizeof(std::int32_t));
}

kernels::ChosenRows ChosenLayers::next(const Step& step) {
  kernels::ChosenRows rows;
  rows.rows = step.wire_room.data();
  rows.outputs = step.outputs_room.data();
  rows.count = static_cast<std::int32_t>(step.rows);
  rows.experts_read = numbers() + layers_.size();
  rows.ids = numbers() + most_ + layers_.size() * pairs_;
  layers_.push_back(step.layer);
  return rows;
}

void ChosenLayers::tell(kernels::Stream& stream, ForwardListener& listener) const {
  if (layers_.empty()) return;
  const std::size_t count = most_ + layers_.size() * pairs_;
  const std::byte* const here = stream.read(numbers(), count * sizeof(std::int32_t));
  const std::span all(reinterpret_cast<const std::int32_t*>(here), count);
  std::uint64_t experts_read = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    experts_read += static_cast<std::uint32_t>(all[i]);
    listener.on_routed(layers_[i], all.subspan(most_ + i * pairs_, pairs_));
  }
  listener.on_experts_read(experts_read);
}

}  // namespace troupe
