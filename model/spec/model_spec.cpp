#include "model/spec/model_spec.h"

#include <algorithm>

namespace troupe {

std::int32_t ModelSpec::num_experts() const {
  std::int32_t most = 0;
  for (const LayerSpec& layer : layers)
    if (layer.has_experts()) most = std::max(most, layer.experts.gate.experts);
  return most;
}

std::int32_t ModelSpec::top_k() const {
  std::int32_t most = 0;
  for (const LayerSpec& layer : layers)
    if (layer.has_experts()) most = std::max(most, layer.experts.gate.top_k);
  return most;
}

std::int32_t ModelSpec::expert_groups() const {
  std::int32_t groups = 1;
  for (const LayerSpec& layer : layers)
    if (layer.has_experts()) groups = std::max(groups, layer.experts.gate.n_group);
  return groups;
}

std::string name_of(const WeightSpec& spec, std::int32_t expert) {
  const auto star = spec.name.find('*');
  if (star == std::string::npos) return spec.name;
  std::string name = spec.name;
  return name.replace(star, 1, std::to_string(expert));
}

}  // namespace troupe
