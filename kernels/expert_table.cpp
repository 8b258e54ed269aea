#include <utility>

#include "kernels/chosen_mlp.h"
#include "kernels/cpu/weight_layout.h"

namespace troupe::kernels {
namespace {

const float* bias_at(const Weight& bias) { return bias.empty() ? nullptr : vector_of(bias); }

const std::byte* panels_of(const Weight& weight) {
  return WeightLayout::panel(weight, WeightLayout::of(weight), 0, 0);
}

}  // namespace

ExpertTable expert_table(Stream& stream, std::vector<const GatedMlp*> experts) {
  std::vector<ExpertPlace> places;
  for (const GatedMlp* e : experts)
    places.push_back({panels_of(e->gate), panels_of(e->up), panels_of(e->down),
                      bias_at(e->gate_bias), bias_at(e->up_bias), bias_at(e->down_bias)});
  const std::size_t bytes = places.size() * sizeof(ExpertPlace);
  ExpertTable table = {std::move(experts), stream.memory(bytes)};
  stream.write(table.places.get(), places.data(), bytes);
  return table;
}

}  // namespace troupe::kernels
