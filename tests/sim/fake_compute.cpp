#include "tests/sim/fake_compute.h"

#include <cassert>
#include <cstring>

namespace troupe::sim {
namespace {

std::uint64_t read_row(const Payload& payload, std::size_t row) {
  std::uint64_t value = 0;
  std::memcpy(&value, payload.bytes.data() + row * kRowBytes, kRowBytes);
  return value;
}

Payload write_rows(const std::vector<std::uint64_t>& rows) {
  auto buffer = std::make_shared<Buffer>(std::max<std::size_t>(1, rows.size()) * kRowBytes);
  std::memcpy(buffer->data(), rows.data(), rows.size() * kRowBytes);
  Payload payload = Payload::of(std::move(buffer));
  payload.bytes = payload.bytes.first(rows.size() * kRowBytes);
  return payload;
}

}  // namespace

FakeCompute::FakeCompute(const Options& options)
    : options_(options),
      slots_(static_cast<std::size_t>((options.last_layer - options.first_layer + 1) *
                                      options.blocks * options.block_size)) {}

std::uint64_t& FakeCompute::slot(std::int32_t layer, const StepSequence& sequence,
                                 std::int32_t position) {
  const auto index = static_cast<std::size_t>(position / options_.block_size);
  assert(index < sequence.block_table.size());
  const std::int32_t block = sequence.block_table[index];
  assert(block >= 0 && block < options_.blocks);
  return slots_[static_cast<std::size_t>(
      ((layer - options_.first_layer) * options_.blocks + block) * options_.block_size +
      position % options_.block_size)];
}

FakeCompute::Outcome FakeCompute::begin(const LayerShardActions::Begin& begin,
                                        const std::set<ExpertKey>& held) {
  const StepPlanBody& plan = std::get<StepPlan>(*begin.plan).body;
  Run& run = runs_[plan.step];
  run = Run{begin.plan, {}, options_.first_layer};
  const bool first = options_.first_layer == 0;
  for (const StepSequence& sequence : plan.sequences) {
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      const auto position = sequence.first_position + static_cast<std::int32_t>(i);
      Row row;
      if (first) {
        row.value = embed(sequence.tokens[i], position < sequence.prompt_length);
      } else if ((run.rows.size() + 1) * kRowBytes <= begin.hidden.bytes.size()) {
        row.value = read_row(begin.hidden, run.rows.size());
      }
      run.rows.push_back(row);
    }
  }
  if (!first && begin.hidden.bytes.size() != run.rows.size() * kRowBytes) {
    Outcome outcome;
    outcome.wrong = "A step began without the rows of the stage before.";
    return outcome;
  }
  attend(run);
  return advance(run, held);
}

FakeCompute::Outcome FakeCompute::resume(const LayerShardActions::Resume& resume,
                                         const std::set<ExpertKey>& held) {
  Outcome outcome;
  const auto it = runs_.find(resume.step);
  if (it == runs_.end()) {
    outcome.wrong = "A step went on that was released.";
    return outcome;
  }
  Run& run = it->second;
  for (const ExpertArrival& arrival : resume.arrivals) {
    for (std::size_t i = 0; i < arrival.outputs.size(); ++i) {
      const MissingOutput& output = arrival.outputs[i];
      Row& row = run.rows[static_cast<std::size_t>(output.row)];
      const auto slot = static_cast<std::size_t>(output.slot);
      if (row.computed[slot] || row.experts[slot] != output.expert)
        outcome.wrong = "An expert's output came twice, or to a row that did not ask for it.";
      row.computed[slot] = true;
      row.outputs[slot] = read_row(arrival.payload, i);
    }
  }
  for (Row& row : run.rows) {
    for (const bool computed : row.computed)
      if (!computed) outcome.wrong = "A step went on without all outputs of its experts.";
    row.value = combine(row.value, row.outputs);
  }
  if (!outcome.wrong.empty()) return outcome;
  if (++run.layer <= options_.last_layer) attend(run);
  return advance(run, held);
}

FakeCompute::Outcome FakeCompute::advance(Run& run, const std::set<ExpertKey>& held) {
  Outcome outcome;
  while (run.layer <= options_.last_layer) {
    if (has_experts(run.layer) && !use_experts(run, held, outcome)) return outcome;
    if (++run.layer <= options_.last_layer) attend(run);
  }
  end(run, outcome);
  return outcome;
}

void FakeCompute::attend(Run& run) {
  std::size_t next = 0;
  for (const StepSequence& sequence : std::get<StepPlan>(*run.plan).body.sequences) {
    std::uint64_t chain = 0;
    for (std::int32_t p = 0; p < sequence.first_position; ++p)
      chain = mix(chain, slot(run.layer, sequence, p));
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      Row& row = run.rows[next++];
      slot(run.layer, sequence, sequence.first_position + static_cast<std::int32_t>(i)) = row.value;
      chain = mix(chain, row.value);
      row.value = mix(chain, static_cast<std::uint64_t>(run.layer));
    }
  }
}

/// False when rows wait for experts elsewhere.
bool FakeCompute::use_experts(Run& run, const std::set<ExpertKey>& held, Outcome& outcome) {
  ExpertCut cut;
  cut.layer = run.layer;
  cut.row_bytes = kRowBytes;
  std::vector<std::uint64_t> values;
  for (std::size_t r = 0; r < run.rows.size(); ++r) {
    Row& row = run.rows[r];
    values.push_back(row.value);
    row.experts = gate(row.value, run.layer);
    for (std::size_t k = 0; k < kTopK; ++k) {
      row.computed[k] = held.contains({run.layer, row.experts[k]});
      if (row.computed[k]) {
        row.outputs[k] = expert_output(row.value, run.layer, row.experts[k]);
      } else {
        cut.missing.push_back(
            {static_cast<std::int32_t>(r), static_cast<std::int32_t>(k), row.experts[k]});
      }
    }
  }
  if (!cut.missing.empty()) {
    cut.rows = write_rows(values);
    outcome.cut = std::move(cut);
    return false;
  }
  for (Row& row : run.rows) row.value = combine(row.value, row.outputs);
  return true;
}

void FakeCompute::end(const Run& run, Outcome& outcome) const {
  outcome.computed.done = true;
  if (options_.last_layer + 1 < kLayers) {
    std::vector<std::uint64_t> values;
    for (const Row& row : run.rows) values.push_back(row.value);
    outcome.computed.hidden = write_rows(values);
    return;
  }
  std::size_t next = 0;
  for (const StepSequence& sequence : std::get<StepPlan>(*run.plan).body.sequences) {
    SequenceResult result{sequence.id, {}, {}};
    if (sequence.prompt_logprobs) result.prompt.resize(sequence.tokens.size());
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      const std::uint64_t row = run.rows[next++].value;
      if (sequence.prompt_logprobs && sequence.targets[i] >= 0)
        result.prompt[i] = scored(row, sequence.targets[i], sequence.sampling.top_logprobs);
      const auto position = sequence.first_position + static_cast<std::int32_t>(i);
      if (sequence.sample && i + 1 == sequence.tokens.size())
        result.sampled = sample(row, sequence.sampling, position + 1);
    }
    outcome.computed.sequences.push_back(std::move(result));
  }
}

Payload compute_experts(const Dispatch& dispatch) {
  std::vector<std::uint64_t> outputs;
  for (const ExpertPair& pair : dispatch.pairs)
    outputs.push_back(
        expert_output(read_row(dispatch.payload, pair.row), dispatch.layer, pair.expert));
  return write_rows(outputs);
}

}  // namespace troupe::sim
