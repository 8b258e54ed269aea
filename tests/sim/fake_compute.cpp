#include "tests/sim/fake_compute.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <set>

#include "runtime/limits.h"
#include "tests/sim/fake_rows.h"
#include "tests/sim/sim_piece.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

constexpr Duration kCountEvery = std::chrono::seconds(1);

/// As its copy there and that device make it.
std::uint64_t answer_of(const SimDevice& device, const ExpertWeights& weights, std::uint64_t row,
                        const ExpertKey& key) {
  const std::uint64_t output = expert_output(row, key.layer, key.expert);
  return spoilt(spoilt(output, number_of(weights.tensors)), device.wrong());
}

}  // namespace

std::size_t FakeExperts::run(const ExpertSet& experts, const ExpertPairs& pairs) {
  std::set<std::int32_t> read;
  for (std::size_t i = 0; i < pairs.experts.size(); ++i) {
    const ExpertKey key{pairs.layer, pairs.experts[i]};
    const ExpertWeights* weights = experts.find(key);
    if (!weights) continue;
    read.insert(key.expert);
    std::uint64_t row = 0;
    std::memcpy(&row, pairs.rows[i], kRowBytes);
    const std::uint64_t output = answer_of(device_, *weights, row, key);
    std::memcpy(pairs.outputs[i], &output, kRowBytes);
  }
  return read.size();
}

// --- One shard ----------------------------------------------------------------------------------

FakeCompute::FakeCompute(ShardSpec spec, SimHost& host, std::shared_ptr<FakeExperts> experts)
    : spec_(std::move(spec)),
      host_(host),
      slots_(static_cast<std::size_t>((spec_.layers.last - spec_.layers.first + 1) * spec_.blocks *
                                      spec_.block_size)),
      users_(static_cast<std::size_t>(spec_.blocks)),
      experts_(std::move(experts)) {}

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

void FakeCompute::tell(const Run& run, ComputeOutcome outcome) const {
  run.news.lock()->computed(run.id, std::move(outcome));
}

void FakeCompute::begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) {
  const StepPlanBody& plan = std::get<StepPlan>(*begin.plan).body;
  if (const std::string failed = spec_.device->failed(); !failed.empty())
    return news->computed(plan.step, error("The device has failed: " + failed + "."));
  auto& place = runs_[plan.step];
  place = std::make_unique<Run>(*this);
  Run& run = *place;
  run.id = plan.step;
  run.plan = begin.plan;
  run.express = plan.express;
  run.news = news;
  run.layer = spec_.layers.first;
  const bool first = spec_.layers.first == 0;
  for (const StepSequence& sequence : plan.sequences) {
    for (const TokenId token : sequence.tokens) {
      if (token == kPoison) host_.world().poisoned(host_.machine());
      Row row;
      if (first) {
        row.value = embed(token);
      } else if ((run.rows.size() + 1) * kRowBytes <= begin.hidden.bytes.size()) {
        row.value = read_row(begin.hidden.bytes, run.rows.size());
      }
      run.rows.push_back(row);
    }
  }
  if (!first && begin.hidden.bytes.size() != run.rows.size() * kRowBytes)
    return tell(run, wrong("A step began without the rows of the stage before."));
  if (!own_blocks(plan))
    return tell(run, wrong("A step writes to a block that another sequence of it has."));
  advance(run);
}

/// Whether each sequence has what it writes to for itself.
bool FakeCompute::own_blocks(const StepPlanBody& plan) const {
  std::set<std::int32_t> read, written;
  for (const StepSequence& sequence : plan.sequences) {
    const auto first = static_cast<std::size_t>(sequence.first_position / spec_.block_size);
    for (std::size_t i = 0; i < sequence.block_table.size(); ++i) {
      if (i < first)
        read.insert(sequence.block_table[i]);
      else if (!written.insert(sequence.block_table[i]).second)
        return false;
    }
  }
  return std::ranges::none_of(read, [&](std::int32_t block) { return written.contains(block); });
}

void FakeCompute::resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) {
  if (const std::string failed = spec_.device->failed(); !failed.empty())
    return news->computed(resume.step, error("The device has failed: " + failed + "."));
  const auto it = runs_.find(resume.step);
  if (it == runs_.end())
    return news->computed(resume.step, wrong("A step went on that was released."));
  Run& run = *it->second;
  run.news = news;
  bool fits = true;
  resume.cut.each_answered([&](const MissingOutput& output, const Payload& output_row) {
    Row& row = run.rows[static_cast<std::size_t>(output.row)];
    const auto slot = static_cast<std::size_t>(output.slot);
    fits &= !row.computed[slot] && row.experts[slot] == output.expert;
    row.computed[slot] = true;
    row.outputs[slot] = read_row(output_row.bytes, 0);
  });
  if (!fits)
    return tell(run, wrong("An expert's output came twice, or to a row that did not ask."));
  advance(run);
}

void FakeCompute::release(StepId step) {
  if (ranks_) ranks_->forget(step);
  runs_.erase(step);
}

void FakeCompute::give_up(StepId step) {
  const auto it = runs_.find(step);
  if (it == runs_.end()) return;
  Run& run = *it->second;
  run.given_up = true;
  if (device().pool().leave(run) || stop_waiting(run))
    tell(run, error("Nobody wants the step any more."));
}

void FakeCompute::end() {
  for (const auto& [step, run] : runs_) device().pool().leave(*run);
  if (ranks_) ranks_->close();
}

// --- The parts of a layer: true if the step goes on at once -------------------------------------

void FakeCompute::advance(Run& run) {
  while (run.layer <= spec_.layers.last)
    if (!part(run)) return;
  tell(run, end(run));
}

bool FakeCompute::part(Run& run) {
  using At = Run::At;
  switch (run.at) {
    case At::kAttention: {
      attend(run);
      if (spec_.layers.rank.alone()) return end_attention(run);
      run.at = At::kSum;
      const std::uint32_t self = spec_.layers.rank.rank, size = spec_.layers.rank.size;
      std::vector<std::uint64_t> parts;
      for (Row& row : run.rows) {
        std::uint64_t part = mix(row.value, self);
        if (self == 0) {
          part = row.value;
          for (std::uint32_t other = 1; other < size; ++other) part -= mix(row.value, other);
        }
        row.value = part;
        parts.push_back(part);
      }
      return exchange(
          run, [&](std::uint32_t) { return parts; },
          [&](std::uint32_t) { return run.rows.size(); });
    }
    case At::kSum:
      for (const Payload& payload : run.parts)
        for (std::size_t r = 0; !payload.empty() && r < run.rows.size(); ++r)
          run.rows[r].value += read_row(payload.bytes, r);
      return end_attention(run);
    case At::kExperts:
      return end_experts(run);
    case At::kRows:
      for (std::uint32_t rank = 0; rank < spec_.layers.rank.size; ++rank)
        for (std::size_t r = first_row(run, rank); r < first_row(run, rank + 1); ++r)
          if (rank != spec_.layers.rank.rank)
            run.rows[r].value = read_row(run.parts[rank].bytes, r - first_row(run, rank));
      return end_layer(run);
  }
  return false;
}

bool FakeCompute::end_attention(Run& run) {
  note_canary(run);
  if (!has_experts(run.layer)) return end_layer(run);
  run.at = Run::At::kExperts;
  if (first_row(run, spec_.layers.rank.rank) == first_row(run, spec_.layers.rank.rank + 1))
    return true;
  use_experts(run);
  return false;
}

bool FakeCompute::end_experts(Run& run) {
  const std::uint32_t self = spec_.layers.rank.rank;
  std::vector<std::uint64_t> own;
  for (std::size_t r = first_row(run, self); r < first_row(run, self + 1); ++r) {
    Row& row = run.rows[r];
    for (const bool computed : row.computed)
      if (!computed) host_.world().broken("A step went on without all outputs of its experts.");
    row.value = combine(row.value, row.outputs);
    own.push_back(row.value);
  }
  if (spec_.layers.rank.alone()) return end_layer(run);
  run.at = Run::At::kRows;
  return exchange(
      run, [&](std::uint32_t) { return own; },
      [&](std::uint32_t rank) { return first_row(run, rank + 1) - first_row(run, rank); });
}

bool FakeCompute::end_layer(Run& run) {
  note_canary(run);
  ++run.layer;
  run.at = Run::At::kAttention;
  return true;
}

void FakeCompute::attend(Run& run) {
  std::size_t next = 0;
  const StepPlanBody& plan = std::get<StepPlan>(*run.plan).body;
  for (const StepSequence& sequence : plan.sequences) {
    const auto first_written = static_cast<std::size_t>(sequence.first_position / spec_.block_size);
    for (std::size_t i = 0; i < sequence.block_table.size(); ++i) {
      Users& users = users_[static_cast<std::size_t>(sequence.block_table[i])];
      const bool writes = i >= first_written;
      if (users.writer > plan.step || (writes && users.reader > plan.step))
        host_.world().broken("A step went on in a block that a later step has used.");
      StepId& newest = writes ? users.writer : users.reader;
      newest = std::max(newest, plan.step);
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
        sum += mix(run.rows[next].value, static_cast<std::uint64_t>(sequence.first_position) + i);
  }
  if (canary) run.digests.push_back(sum);
}

/// Asks for the experts elsewhere, and has those here wait for the device's next pass.
void FakeCompute::use_experts(Run& run) {
  run.set = device().serving_experts();
  ExpertCut cut;
  cut.layer = run.layer;
  cut.row_bytes = kRowBytes;
  run.pair_rows.clear();
  run.pair_experts.clear();
  run.pair_outputs.clear();
  std::vector<std::uint64_t> values;
  const std::uint32_t self = spec_.layers.rank.rank;
  for (const Row& row : run.rows) values.push_back(row.value);
  for (std::size_t r = first_row(run, self); r < first_row(run, self + 1); ++r) {
    Row& row = run.rows[r];
    row.experts = gate(row.value, run.layer);
    for (std::size_t k = 0; k < kTopK; ++k) {
      row.computed[k] = false;
      if (run.set->has({run.layer, row.experts[k]})) {
        run.pair_rows.push_back(reinterpret_cast<const std::byte*>(&row.value));
        run.pair_experts.push_back(row.experts[k]);
        run.pair_outputs.push_back(reinterpret_cast<std::byte*>(&row.outputs[k]));
      } else {
        cut.missing.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(k),
                               row.experts[k], static_cast<std::int32_t>(r)});
      }
    }
  }
  run.missing = !cut.missing.empty();
  const std::shared_ptr<ShardNews> news = run.news.lock();
  if (run.missing) {
    const auto bytes = std::as_bytes(std::span(values));
    cut.rows.assign(bytes.begin(), bytes.end());
    news->cut(run.id, std::move(cut));
  }
  run.pairs = {run.layer, run.pair_rows, run.pair_experts, run.pair_outputs};
  if (!run.pair_experts.empty()) return device().pool().join(run, news);
  run.set.reset();
  tell(run, {});
}

void FakeCompute::Run::computed(const Status& done) {
  goes_on = done.ok() && !missing;
  for (std::size_t i = 0; i < pair_experts.size() && done.ok(); ++i)
    for (Row& row : rows)
      for (std::size_t k = 0; k < kTopK; ++k)
        if (pair_outputs[i] == reinterpret_cast<std::byte*>(&row.outputs[k]))
          row.computed[k] = true;
  if (!done.ok()) return compute.tell(*this, error(done.error().message));
  if (missing) compute.tell(*this, {});
}

void FakeCompute::Run::go_on() {
  if (goes_on) compute.advance(*this);
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

struct FakePass::Asked final : ExpertWork {
  void computed(const Status& done) override {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    if (!done.ok()) return news->answered({not_here(question, {}, done.error().message)});
    if (corrupt) outputs.push_back(0);
    MessagePtr answer = message_of(ExpertOutput{
        dispatch.call, static_cast<std::uint32_t>(outputs.size()), write_rows(outputs)});
    news->answered({{std::move(question), std::move(answer)}});
  }

  Envelope question;
  std::shared_ptr<PassNews> news;
  bool corrupt = false;
  std::vector<std::uint64_t> outputs;
  std::vector<const std::byte*> pair_rows;
  std::vector<std::int32_t> pair_experts;
  std::vector<std::byte*> pair_outputs;
};

void FakePass::run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) {
  for (Envelope& question : questions) {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    const auto asked = std::make_shared<Asked>();
    asked->set = device_.experts();
    std::vector<std::int32_t> absent;
    for (const ExpertPair& pair : dispatch.pairs)
      if (!asked->set->has({dispatch.layer, pair.expert})) absent.push_back(pair.expert);
    if (!device_.failed().empty() || !absent.empty()) {
      news->answered({not_here(question, absent, "not here")});
      continue;
    }
    asked->outputs.resize(dispatch.pairs.size());
    for (std::size_t i = 0; i < dispatch.pairs.size(); ++i) {
      asked->pair_rows.push_back(dispatch.payload.bytes.data() + dispatch.pairs[i].row * kRowBytes);
      asked->pair_experts.push_back(dispatch.pairs[i].expert);
      asked->pair_outputs.push_back(reinterpret_cast<std::byte*>(&asked->outputs[i]));
    }
    asked->pairs = {dispatch.layer, asked->pair_rows, asked->pair_experts, asked->pair_outputs};
    asked->arithmetic = experts_.get();
    asked->express = dispatch.express;
    asked->news = news;
    asked->corrupt = host_.world().corrupt_answers.contains(host_.machine());
    asked->question = std::move(question);
    device_.pool().join(*asked, asked);
  }
}

// --- The factory --------------------------------------------------------------------------------

Result<std::unique_ptr<ShardCompute>> FakeFactory::make_shard(ShardSpec spec) {
  if (!counter_ && spec.counter) {
    counter_ = spec.counter;
    count();
  }
  auto experts = experts_on(*spec.device);
  return std::unique_ptr<ShardCompute>(
      std::make_unique<FakeCompute>(std::move(spec), host_, std::move(experts)));
}

Result<MadePass> FakeFactory::make_pass(const PassSpec& spec) {
  return MadePass{std::make_unique<FakePass>(static_cast<SimDevice&>(*spec.device), host_,
                                             experts_on(*spec.device)),
                  kRowBytes};
}

std::shared_ptr<FakeExperts> FakeFactory::experts_on(const Device& device) {
  auto& known = experts_[device.options().index];
  auto experts = known.lock();
  if (!experts) {
    experts = std::make_shared<FakeExperts>(static_cast<const SimDevice&>(device));
    known = experts;
  }
  return experts;
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
