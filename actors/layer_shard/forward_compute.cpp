#include "actors/layer_shard/forward_compute.h"

#include <cstring>
#include <exception>
#include <new>

namespace troupe {
namespace {

/// An exception of a kernel ends the step and the device, not the node: the step can be run
/// elsewhere. Memory may only be short for now.
template <class Work>
ComputeOutcome guarded(Device& device, const Work& work) {
  ComputeOutcome outcome;
  try {
    const std::string failed = device.failed();
    if (failed.empty()) return work();
    outcome.error = unavailable("The device has failed: " + failed + ".");
  } catch (const ThreadPool::Interrupted& e) {
    outcome.error = unavailable(std::string("A step was given up: ") + e.what() + ".");
  } catch (const std::bad_alloc&) {
    outcome.error = resource_exhausted("A step could not be computed: memory is short.");
  } catch (const std::exception& e) {
    device.fail(e.what());
    outcome.error = unavailable(std::string("A step could not be computed: ") + e.what() + ".");
  }
  return outcome;
}

}  // namespace

ForwardCompute::ForwardCompute(Options options, CpuDevice& device)
    : options_(std::move(options)),
      device_(device),
      forward_(options_.model, options_.numerics, options_.weights, options_.cache,
               device.threads()) {}

ComputeOutcome ForwardCompute::begin(const BeginStep& begin, const OnCut& on_cut) {
  return guarded(device_, [&] {
    const auto& plan = std::get<StepPlan>(*begin.plan);
    auto& run = runs_[plan.body.step];
    if (spare_.empty()) {
      run = std::make_unique<StepRun>();
    } else {
      run = std::move(spare_.back());
      spare_.pop_back();
    }
    std::size_t rows = 0;
    for (const auto& sequence : plan.body.sequences) {
      rows += sequence.tokens.size();
      for (const TokenId token : sequence.tokens)
        if (token == options_.crash_token) __builtin_trap();
    }
    ComputeOutcome outcome;
    const std::size_t expected =
        rows * static_cast<std::size_t>(options_.model.hidden_size) * sizeof(float);
    if (!begin.hidden.empty() && begin.hidden.bytes.size() != expected) {
      outcome.error = corrupt("The hidden rows of the stage before do not match the step's plan.");
      return outcome;
    }
    const auto* hidden =
        begin.hidden.empty() ? nullptr : reinterpret_cast<const float*>(begin.hidden.bytes.data());
    const Status begun = forward_.begin(*run, plan.body, hidden);
    if (!begun.ok()) {
      outcome.error = begun.error();
      return outcome;
    }
    return advance(*run, on_cut);
  });
}

ComputeOutcome ForwardCompute::resume(const ResumeStep& resume, const OnCut& on_cut) {
  return guarded(device_, [&] {
    StepRun& run = *runs_.at(resume.step);
    const std::size_t row_bytes = run.wire_row_bytes();
    for (const auto& arrival : resume.arrivals)
      for (std::size_t i = 0; i < arrival.outputs.size(); ++i)
        std::memcpy(run.expert_output(arrival.outputs[i].row, arrival.outputs[i].slot),
                    arrival.payload.bytes.data() + i * row_bytes, row_bytes);
    return advance(run, on_cut);
  });
}

void ForwardCompute::release(StepId step) {
  const auto it = runs_.find(step);
  if (it == runs_.end()) return;
  spare_.push_back(std::move(it->second));
  runs_.erase(it);
}

ComputeOutcome ForwardCompute::advance(StepRun& run, const OnCut& on_cut) {
  ComputeOutcome outcome;
  while (forward_.advance(run) == Progress::kNeedExperts) {
    if (options_.counter) options_.counter->add(run.layer(), run.expert_ids());
    const auto experts = device_.experts();
    bool remote = false;
    for (const std::int32_t expert : run.expert_ids())
      remote = remote || !experts->has({run.layer(), expert});
    if (remote) {
      missing_.clear();
      const auto ids = run.expert_ids();
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (!experts->has({run.layer(), ids[i]}))
          missing_.push_back({static_cast<std::int32_t>(i) / run.top_k(),
                              static_cast<std::int32_t>(i) % run.top_k(), ids[i]});
      on_cut(cut_of(run));
    }
    forward_.run_local_experts(run, *experts, missing_);
    forward_.run_shared(run);
    if (remote) return outcome;
  }
  outcome.done = true;
  outcome.digests = run.digests();
  if (options_.last_stage) {
    outcome.sequences = std::move(run.results());
  } else {
    const std::size_t bytes = static_cast<std::size_t>(run.rows()) *
                              static_cast<std::size_t>(options_.model.hidden_size) * sizeof(float);
    auto buffer = std::make_shared<Buffer>(bytes);
    std::memcpy(buffer->data(), run.hidden(), bytes);
    outcome.hidden = Payload::of(std::move(buffer));
  }
  return outcome;
}

ExpertCut ForwardCompute::cut_of(StepRun& run) const {
  ExpertCut cut;
  cut.layer = run.layer();
  cut.row_bytes = run.wire_row_bytes();
  cut.missing.reserve(missing_.size());
  for (const auto& m : missing_) cut.missing.push_back({m.row, m.slot, m.expert});
  auto buffer = std::make_shared<Buffer>(static_cast<std::size_t>(run.rows()) * cut.row_bytes);
  for (std::int32_t row = 0; row < run.rows(); ++row)
    std::memcpy(buffer->data() + static_cast<std::size_t>(row) * cut.row_bytes, run.normed(row),
                cut.row_bytes);
  cut.rows = Payload::of(std::move(buffer));
  return cut;
}

}  // namespace troupe
