#include "model/expert_forward.h"

#include <algorithm>
#include <vector>

#include "kernels/expert_ffn.h"
#include "kernels/round_wire.h"
#include "model/layer_weights.h"

namespace troupe {
namespace {

/// Experts are taken together until they have this many rows, which bounds the scratch.
constexpr std::size_t kRowsPerCall = 4096;
/// Numbers to convert from which on several threads do it.
constexpr std::size_t kParallelAbove = 1 << 16;

}  // namespace

struct ExpertForward::Impl {
  Impl(const ModelConfig& config, Numerics numerics, ThreadPool& threads)
      : hidden(static_cast<std::size_t>(config.hidden_size)), wire(wire_type(numerics)) {
    context = {numerics, &threads, &scratch, &threads.fault()};
  }

  /// Lists the pairs whose experts are here, by expert and then in the order they came.
  void group(const ExpertSet& experts, const Pass& pass, std::vector<std::int32_t>& missing);
  /// Runs the grouped pairs [begin, end), which hold whole experts.
  void run(const Pass& pass, std::size_t begin, std::size_t end);

  std::size_t hidden;
  WireType wire;
  kernels::Scratch scratch;
  kernels::Context context;

  struct Pair {
    std::int32_t expert;
    std::int32_t index;  // in the pass
    const kernels::ExpertWeights* weights;
  };
  std::vector<Pair> pairs;
  std::vector<const std::byte*> inputs;   // distinct rows of a call
  std::vector<std::int32_t> input_of;     // [pairs of the call] index into inputs
  std::vector<kernels::ExpertCall> calls;
};

ExpertForward::ExpertForward(const ModelConfig& config, Numerics numerics, ThreadPool& threads)
    : impl_(std::make_unique<Impl>(config, numerics, threads)) {}
ExpertForward::~ExpertForward() = default;

void ExpertForward::run(const ExpertSet& experts, const Pass& pass,
                        std::vector<std::int32_t>& missing) {
  Impl& self = *impl_;
  self.group(experts, pass, missing);
  const auto& pairs = self.pairs;
  for (std::size_t begin = 0; begin < pairs.size();) {
    std::size_t end = begin;
    while (end < pairs.size() && (end - begin < kRowsPerCall ||
                                  pairs[end].expert == pairs[end - 1].expert))
      ++end;
    self.run(pass, begin, end);
    begin = end;
  }
}

void ExpertForward::Impl::group(const ExpertSet& experts, const Pass& pass,
                                std::vector<std::int32_t>& missing) {
  pairs.clear();
  for (std::size_t i = 0; i < pass.experts.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const auto* found = experts.find({pass.layer, pass.experts[i]});
    if (found) pairs.push_back({pass.experts[i], index, &found->mlp});
    else missing.push_back(index);
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::pair(a.expert, a.index) < std::pair(b.expert, b.index);
  });
}

void ExpertForward::Impl::run(const Pass& pass, std::size_t begin, std::size_t end) {
  kernels::Scratch::Scope scope(scratch);
  const std::size_t count = end - begin;
  // A row goes through several experts: widen it once.
  inputs.clear();
  for (std::size_t i = begin; i < end; ++i) inputs.push_back(pass.rows[pairs[i].index]);
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  input_of.clear();
  for (std::size_t i = begin; i < end; ++i) {
    const auto at = std::lower_bound(inputs.begin(), inputs.end(), pass.rows[pairs[i].index]);
    input_of.push_back(static_cast<std::int32_t>(at - inputs.begin()));
  }
  calls.clear();
  for (std::size_t i = begin; i < end;) {
    std::size_t next = i;
    while (next < end && pairs[next].expert == pairs[i].expert) ++next;
    calls.push_back({pairs[i].weights, {input_of.data() + (i - begin), next - i}});
    i = next;
  }

  // Short conversions are not worth waking the pool for.
  const kernels::Context alone = {context.numerics, nullptr, &scratch};
  const auto each = [&](std::size_t rows, const auto& body) {
    if (rows * hidden < kParallelAbove)
      for (std::size_t i = 0; i < rows; ++i) body(0, i);
    else
      context.pool->parallel_for(rows, body);
  };
  const auto x = kernels::make_rows(scratch.take<float>(inputs.size() * hidden), inputs.size(),
                                    hidden);  // [inputs, hidden]
  each(inputs.size(), [&](int, std::size_t i) {
    kernels::from_wire(alone, wire, inputs[i], {x.row(i), 1, hidden, hidden});
  });
  const auto y = kernels::make_rows(scratch.take<float>(count * hidden), count,
                                    hidden);  // [pairs, hidden]
  kernels::expert_ffn(context, calls, x, y);
  each(count, [&](int, std::size_t i) {
    kernels::to_wire(alone, wire, {y.row(i), 1, hidden, hidden},
                     pass.outputs[pairs[begin + i].index]);
  });
}

}  // namespace troupe
