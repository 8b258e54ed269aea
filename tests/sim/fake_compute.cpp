#include "tests/sim/fake_compute.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "tests/sim/sim_piece.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

constexpr Duration kCountEvery = std::chrono::seconds(1);

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

/// As its copy there and that device make it.
std::uint64_t answer_of(const SimDevice& device, std::uint64_t row, const ExpertKey& key) {
  const std::uint64_t output = expert_output(row, key.layer, key.expert);
  return spoilt(spoilt(output, number_of(device.experts()->find(key)->tensors)), device.wrong());
}

}  // namespace

// --- One shard ----------------------------------------------------------------------------------

FakeCompute::FakeCompute(ShardSpec spec, SimHost& host)
    : spec_(std::move(spec)),
      host_(host),
      slots_(static_cast<std::size_t>((spec_.layers.last - spec_.layers.first + 1) * spec_.blocks *
                                      spec_.block_size)),
      writers_(static_cast<std::size_t>(spec_.blocks)) {}

std::uint64_t& FakeCompute::slot(std::int32_t layer, const StepSequence& sequence,
                                 std::int32_t position) {
  const auto index = static_cast<std::size_t>(position / spec_.block_size);
  assert(index < sequence.block_table.size());
  const std::int32_t block = sequence.block_table[index];
  assert(block >= 0 && block < spec_.blocks);
  return slots_[static_cast<std::size_t>(((layer - spec_.layers.first) * spec_.blocks + block) *
                                             spec_.block_size +
                                         position % spec_.block_size)];
}

ComputeOutcome FakeCompute::begin(const BeginStep& begin, const OnCut& on_cut) {
  if (const std::string failed = spec_.device->failed(); !failed.empty())
    return error("The device has failed: " + failed + ".");
  const StepPlanBody& plan = std::get<StepPlan>(*begin.plan).body;
  Run& run = runs_[plan.step];
  run = Run{begin.plan, {}, spec_.layers.first};
  const bool first = spec_.layers.first == 0;
  for (const StepSequence& sequence : plan.sequences) {
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      const auto position = sequence.first_position + static_cast<std::int32_t>(i);
      if (sequence.tokens[i] == kPoison) host_.world().poisoned(host_.machine());
      Row row;
      if (first) {
        row.value = embed(sequence.tokens[i], position < sequence.prompt_length);
      } else if ((run.rows.size() + 1) * kRowBytes <= begin.hidden.bytes.size()) {
        row.value = read_row(begin.hidden, run.rows.size());
      }
      run.rows.push_back(row);
    }
  }
  if (!first && begin.hidden.bytes.size() != run.rows.size() * kRowBytes)
    return wrong("A step began without the rows of the stage before.");
  attend(run);
  return advance(run, on_cut);
}

ComputeOutcome FakeCompute::resume(const ResumeStep& resume, const OnCut& on_cut) {
  if (const std::string failed = spec_.device->failed(); !failed.empty())
    return error("The device has failed: " + failed + ".");
  const auto it = runs_.find(resume.step);
  if (it == runs_.end()) return wrong("A step went on that was released.");
  Run& run = it->second;
  for (const ExpertArrival& arrival : resume.arrivals) {
    for (std::size_t i = 0; i < arrival.outputs.size(); ++i) {
      const MissingOutput& output = arrival.outputs[i];
      Row& row = run.rows[static_cast<std::size_t>(output.row)];
      const auto slot = static_cast<std::size_t>(output.slot);
      if (row.computed[slot] || row.experts[slot] != output.expert)
        return wrong("An expert's output came twice, or to a row that did not ask for it.");
      row.computed[slot] = true;
      row.outputs[slot] = read_row(arrival.payload, i);
    }
  }
  for (Row& row : run.rows) {
    for (const bool computed : row.computed)
      if (!computed) return wrong("A step went on without all outputs of its experts.");
    row.value = combine(row.value, row.outputs);
  }
  note_canary(run);
  if (++run.layer <= spec_.layers.last) attend(run);
  return advance(run, on_cut);
}

ComputeOutcome FakeCompute::advance(Run& run, const OnCut& on_cut) {
  while (run.layer <= spec_.layers.last) {
    if (has_experts(run.layer) && !use_experts(run, on_cut)) return {};
    note_canary(run);
    if (++run.layer <= spec_.layers.last) attend(run);
  }
  return end(run);
}

void FakeCompute::attend(Run& run) {
  std::size_t next = 0;
  const StepPlanBody& plan = std::get<StepPlan>(*run.plan).body;
  for (const StepSequence& sequence : plan.sequences) {
    for (const std::int32_t block : sequence.block_table) {
      StepId& writer = writers_[static_cast<std::size_t>(block)];
      if (writer > plan.step)
        host_.world().broken("A step went on in a block that a later step has used.");
      writer = std::max(writer, plan.step);
    }
    std::uint64_t chain = 0;
    for (std::int32_t p = 0; p < sequence.first_position; ++p)
      chain = mix(chain, slot(run.layer, sequence, p));
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      Row& row = run.rows[next++];
      slot(run.layer, sequence, sequence.first_position + static_cast<std::int32_t>(i)) = row.value;
      chain = mix(chain, row.value);
      row.value = mix(chain, static_cast<std::uint64_t>(run.layer));
      row.value = spoilt(spoilt(row.value, number_of(spec_.weights->tensors)), device().wrong());
    }
  }
  note_canary(run);
}

/// As the model does: after attention and at the end of the layer.
void FakeCompute::note_canary(Run& run) {
  std::uint64_t sum = 0;
  bool canary = false;
  std::size_t next = 0;
  for (const StepSequence& sequence : std::get<StepPlan>(*run.plan).body.sequences) {
    canary |= sequence.canary;
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i, ++next)
      if (sequence.canary)
        sum += mix(run.rows[next].value,
                   static_cast<std::uint64_t>(sequence.first_position) + i);
  }
  if (canary) run.digests.push_back(sum);
}

/// False when rows wait for experts elsewhere.
bool FakeCompute::use_experts(Run& run, const OnCut& on_cut) {
  const auto held = spec_.device->experts();
  ExpertCut cut;
  cut.layer = run.layer;
  cut.row_bytes = kRowBytes;
  std::vector<std::uint64_t> values;
  for (std::size_t r = 0; r < run.rows.size(); ++r) {
    Row& row = run.rows[r];
    values.push_back(row.value);
    row.experts = gate(row.value, run.layer);
    for (std::size_t k = 0; k < kTopK; ++k) {
      row.computed[k] = held->has({run.layer, row.experts[k]});
      if (row.computed[k]) {
        row.outputs[k] = answer_of(device(), row.value, {run.layer, row.experts[k]});
      } else {
        cut.missing.push_back(
            {static_cast<std::int32_t>(r), static_cast<std::int32_t>(k), row.experts[k]});
      }
    }
  }
  if (!cut.missing.empty()) {
    cut.rows = write_rows(values);
    on_cut(std::move(cut));
    return false;
  }
  for (Row& row : run.rows) row.value = combine(row.value, row.outputs);
  return true;
}

ComputeOutcome FakeCompute::end(const Run& run) const {
  ComputeOutcome outcome;
  outcome.done = true;
  outcome.digests = run.digests;
  if (spec_.layers.last + 1 < kLayers) {
    std::vector<std::uint64_t> values;
    for (const Row& row : run.rows) values.push_back(row.value);
    outcome.hidden = write_rows(values);
    return outcome;
  }
  std::size_t next = 0;
  for (const StepSequence& sequence : std::get<StepPlan>(*run.plan).body.sequences) {
    SequenceResult result{sequence.id, {}, {}};
    const auto& tokens = sequence.tokens;
    if (std::find(tokens.begin(), tokens.end(), kOdd) != tokens.end()) {
      result.trouble = kOddTrouble;
      next += tokens.size();
      outcome.sequences.push_back(std::move(result));
      continue;
    }
    if (sequence.prompt_logprobs) result.prompt.resize(sequence.tokens.size());
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      const std::uint64_t row = run.rows[next++].value;
      if (sequence.prompt_logprobs && sequence.targets[i] >= 0)
        result.prompt[i] = scored(row, sequence.targets[i], sequence.sampling.top_logprobs);
      const auto position = sequence.first_position + static_cast<std::int32_t>(i);
      if (sequence.sample && i + 1 == sequence.tokens.size())
        result.sampled = sample(row, sequence.sampling, position + 1);
    }
    outcome.sequences.push_back(std::move(result));
  }
  return outcome;
}

ComputeOutcome FakeCompute::error(const std::string& text) {
  ComputeOutcome outcome;
  outcome.error = unavailable(text);
  return outcome;
}

/// What the machine must never have done.
ComputeOutcome FakeCompute::wrong(const std::string& text) const {
  host_.world().broken(text);
  return error(text);
}

// --- One expert group ---------------------------------------------------------------------------

std::vector<PassAnswer> FakePass::run(std::vector<Envelope> questions) {
  const auto held = device_.experts();
  std::vector<PassAnswer> answers;
  for (Envelope& question : questions) {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    std::vector<std::int32_t> absent;
    for (const ExpertPair& pair : dispatch.pairs)
      if (!held->has({dispatch.layer, pair.expert})) absent.push_back(pair.expert);
    if (!device_.failed().empty() || !absent.empty()) {
      answers.push_back(not_here(question, absent, "not here"));
      continue;
    }
    std::vector<std::uint64_t> outputs;
    for (const ExpertPair& pair : dispatch.pairs)
      outputs.push_back(
          answer_of(device_, read_row(dispatch.payload, pair.row), {dispatch.layer, pair.expert}));
    if (host_.world().corrupt_answers.contains(host_.machine())) outputs.push_back(0);
    MessagePtr answer = message_of(ExpertOutput{
        dispatch.call, static_cast<std::uint32_t>(outputs.size()), write_rows(outputs)});
    answers.push_back({std::move(question), std::move(answer)});
  }
  return answers;
}

// --- The factory --------------------------------------------------------------------------------

Result<std::unique_ptr<ShardCompute>> FakeFactory::make_shard(ShardSpec spec) {
  if (!counter_ && spec.counter) {
    counter_ = spec.counter;
    count();
  }
  return std::unique_ptr<ShardCompute>(std::make_unique<FakeCompute>(std::move(spec), host_));
}

Result<MadePass> FakeFactory::make_pass(const PassSpec& spec) {
  return MadePass{std::make_unique<FakePass>(
                        static_cast<const SimDevice&>(*spec.device), host_), kRowBytes};
}

/// The rows that the gates choose for are few; what matters to the plan is how they spread.
void FakeFactory::count() {
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    if (!has_experts(layer)) continue;
    std::vector<std::int32_t> rows;
    for (std::int32_t expert = 0; expert < kExperts; ++expert)
      rows.insert(rows.end(), host_.world().hot_experts > 0 && expert < 2 ? 1000 : 20, expert);
    counter_->add(layer, rows);
  }
  host_.later(kCountEvery, [this] { count(); });
}

}  // namespace troupe::sim
