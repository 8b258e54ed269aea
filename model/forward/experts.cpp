#include "model/forward/experts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "model/weights.h"

namespace troupe {

ExpertForward::ExpertForward(const ModelSpec& spec, const kernels::Stream::Options& stream)
    : stream_(stream),
      act_(spec.act),
      top_k_(static_cast<std::int32_t>(spec.top_k())),
      tables_(static_cast<std::size_t>(spec.num_layers())),
      next_(static_cast<std::size_t>(spec.num_experts()) + 1) {}

/// Those of a set that goes on being used are made once.
const kernels::ExpertTable& ExpertForward::table_of(const ExpertSet& experts, std::int32_t layer) {
  if (tables_of_ != experts.id())
    for (kernels::ExpertTable& table : tables_) table = {};
  tables_of_ = experts.id();
  kernels::ExpertTable& table = tables_[static_cast<std::size_t>(layer)];
  if (!table.experts.empty()) return table;
  std::vector<const kernels::GatedMlp*> all;
  for (std::int32_t e = 0; e < experts.count(layer); ++e)
    all.push_back(&experts.find({layer, e})->mlp);
  table = kernels::expert_table(stream_, std::move(all));
  return table;
}

std::size_t ExpertForward::run(const ExpertSet& experts, const ExpertPairs& pairs) {
  if (!pairs.chosen.empty()) {
    kernels::chosen_mlp(stream_, table_of(experts, pairs.layer), act_, top_k_, pairs.chosen,
                        kRowsPerCall);
    return 0;
  }
  const auto number = static_cast<std::int32_t>(next_.size()) - 1;
  // A counting sort by expert.
  std::fill(next_.begin(), next_.end(), 0);
  for (const std::int32_t expert : pairs.experts) ++next_[static_cast<std::size_t>(expert) + 1];
  calls_.clear();
  std::int32_t here = 0;  // pairs whose experts are here
  for (std::int32_t e = 0; e < number; ++e) {
    std::int32_t& count = next_[static_cast<std::size_t>(e) + 1];
    const ExpertWeights* weights = count > 0 ? experts.find({pairs.layer, e}) : nullptr;
    if (weights != nullptr) calls_.push_back({&weights->mlp, here, count});
    next_[static_cast<std::size_t>(e)] = weights != nullptr ? here : -1;
    here += weights != nullptr ? count : 0;
  }
  rows_.resize(static_cast<std::size_t>(here));
  outputs_.resize(static_cast<std::size_t>(here));
  for (std::size_t i = 0; i < pairs.experts.size(); ++i) {
    std::int32_t& at = next_[static_cast<std::size_t>(pairs.experts[i])];
    if (at < 0) continue;
    rows_[static_cast<std::size_t>(at)] = pairs.rows[i];
    outputs_[static_cast<std::size_t>(at)] = pairs.outputs[i];
    ++at;
  }
  for (std::size_t begin = 0; begin < calls_.size();) {
    std::size_t end = begin;
    std::int32_t rows = 0;
    const std::int32_t first = calls_[begin].first;
    while (end < calls_.size() && rows < kRowsPerCall) {
      calls_[end].first -= first;
      rows += calls_[end++].count;
    }
    kernels::expert_mlp(stream_, std::span(calls_).subspan(begin, end - begin), act_,
                        rows_.data() + first, outputs_.data() + first);
    begin = end;
  }
  return calls_.size();
}

}  // namespace troupe
