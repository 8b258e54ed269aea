#include "actors/layer_shard/forward_compute.h"

#include <immintrin.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "actors/device/guarded.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

ComputeOutcome failed_with(Error error) {
  ComputeOutcome outcome;
  outcome.error = std::move(error);
  return outcome;
}

/// Rows whose experts lie elsewhere, by value: they travel while the step computes on.
void fill(ExpertCut& cut, const Step& step) {
  cut.layer = step.layer;
  cut.express = step.plan->express;
  cut.row_bytes = step.wire_row_bytes;
  cut.missing.clear();
  std::int32_t rows = 0, last = -1;
  for (const MissingExpert& m : step.missing) {
    if (std::exchange(last, m.row) != m.row) ++rows;
    cut.missing.push_back({m.row, m.slot, m.expert, rows - 1});
  }
  cut.rows.resize(static_cast<std::size_t>(rows) * cut.row_bytes);
  for (const MissingOutput& m : cut.missing)
    std::memcpy(cut.rows.data() + static_cast<std::size_t>(m.source) * cut.row_bytes,
                step.wire_row(m.row), cut.row_bytes);
}

/// Counts what the gates choose and experts that are read, and asks for what is elsewhere.
class Listener final : public ForwardListener {
 public:
  Listener(Device& device, ExpertCounter* counter, StepId step, ExpertCut& cut, ShardNews& news,
           bool yields)
      : device_(device), counter_(counter), step_(step), cut_(cut), news_(news), yields_(yields) {}
  void on_routed(std::int32_t layer, std::span<const std::int32_t> experts) override {
    if (counter_) counter_->add(layer, experts);
  }
  void on_experts_read(std::uint64_t experts) override { device_.count_experts_read(experts); }
  void on_missing(const Step& step) override {
    fill(cut_, step);
    news_.cut(step_, std::move(cut_));
  }
  void on_found(const Step&) override { news_.found(step_); }
  bool yields() override { return yields_ && device_.express_waits(); }

 private:
  Device& device_;
  ExpertCounter* counter_;
  const StepId step_;
  ExpertCut& cut_;
  ShardNews& news_;
  const bool yields_;
};

}  // namespace

ForwardCompute::ForwardCompute(Options options, CpuDevice& device)
    : options_(std::move(options)),
      device_(device),
      forward_(*options_.model, options_.weights, options_.cache,
               device.stream(options_.numerics)) {
  forward_.use(options_.grammars);
}

/// The step can be run elsewhere if this device fails over it.
template <class Work>
void ForwardCompute::work_on(Run& run, const Work& work) {
  if (const Status done = guarded(device_, "A step", work); !done.ok())
    run.news.lock()->computed(run.id, failed_with(done.error()));
}

ForwardCompute::Run& ForwardCompute::run_for(StepId step, bool express) {
  auto& run = runs_[step];
  auto& spare = express ? spare_express_ : spare_;
  if (spare.empty()) {
    run = std::make_unique<Run>(*this);
  } else {
    run = std::move(spare.back());
    spare.pop_back();
  }
  run->id = step;
  run->express = express;
  run->given_up = false;
  return *run;
}

void ForwardCompute::begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) {
  const StepPlanBody& plan = std::get<StepPlan>(*begin.plan).body;
  Run& run = run_for(plan.step, plan.express);
  run.news = news;
  work_on(run, [&]() -> Status {
    if (Status checked = check(begin); !checked.ok()) return checked;
    run.plan = begin.plan;
    if (Status begun = forward_.begin(run.step, plan, begin.hidden); !begun.ok()) return begun;
    return advance(run);
  });
}

Status ForwardCompute::check(const BeginStep& begin) const {
  std::size_t rows = 0;
  for (const auto& sequence : std::get<StepPlan>(*begin.plan).body.sequences) {
    rows += sequence.tokens.size();
    if (options_.on_tokens) options_.on_tokens(sequence.tokens);
  }
  const std::size_t expected =
      rows * static_cast<std::size_t>(options_.model->hidden) * sizeof(float);
  if (begin.hidden.empty() || begin.hidden.bytes.size() == expected) return {};
  return corrupt("The hidden rows of the stage before do not match the step's plan.");
}

void ForwardCompute::resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) {
  Run& run = *runs_[resume.step];
  run.news = news;
  work_on(run, [&]() -> Status {
    run.cut = std::move(resume.cut);
    run.cut.each_answered([&](const MissingOutput& output, const Payload& row) {
      forward_.answer(run.step, {output.row, output.slot, output.expert}, row);
    });
    run.cut.answers.clear();
    return advance(run);
  });
}

void ForwardCompute::release(StepId step) {
  if (ranks_) stop_waiting(step);
  const auto it = runs_.find(step);
  if (it == runs_.end()) return;
  it->second->plan = nullptr;
  it->second->news.reset();
  it->second->set.reset();
  (it->second->express ? spare_express_ : spare_).push_back(std::move(it->second));
  runs_.erase(it);
}

void ForwardCompute::give_up(StepId step) {
  const auto it = runs_.find(step);
  if (it == runs_.end()) return;
  Run& run = *it->second;
  run.given_up = true;
  const std::shared_ptr<ShardNews> news = run.news.lock();
  if (!device_.pool().leave(run) && !(ranks_ && stop_waiting(step))) return;
  run.computed(unavailable("nobody wants it any more"));
}

void ForwardCompute::end() {
  for (const auto& [step, run] : runs_) {
    run->given_up = true;
    device_.pool().leave(*run);
  }
  if (ranks_) ranks_->close();
}

/// For other ranks. True: it did wait.
bool ForwardCompute::stop_waiting(StepId step) {
  const bool waited = ranks_->forget(step);
  if (waited) --exchanging_;
  return waited;
}

/// Until the step is done, or its experts or other ranks are needed.
Status ForwardCompute::advance(Run& run) {
  const std::shared_ptr<ShardNews> news = run.news.lock();
  // What an accelerator was given is computed without this thread, and in order.
  const bool yields = !run.express && !device_.has_own_memory();
  Listener listener(device_, options_.counter.get(), run.id, run.cut, *news, yields);
  for (;;) {
    run.set = device_.serving_experts();
    const Cut cut = forward_.advance(run.step, *run.set, listener);
    if (cut == Cut::kRanks) {
      const Result<bool> here = exchange(run, news);
      if (!here.ok()) return here.error();
      if (*here) continue;
      return {};
    }
    if (cut == Cut::kYield) {
      (void)device_.submit([this, news, step = run.id] { go_on(step, news); },
                           Device::Room::kAlways);
      return {};
    }
    if (cut == Cut::kCorrupt)
      return corrupt("A tensor-parallel rank sent outputs of experts that do not fit.");
    if (cut == Cut::kExperts && run.step.any_here()) {
      run.pairs = run.step.pairs();
      device_.pool().join(run, news);
      return {};
    }
    run.set.reset();
    news->computed(run.id, run.step.at == Step::At::kDone ? outcome_of(run) : ComputeOutcome{});
    return {};
  }
}

// --- Tensor-parallel ranks ----------------------------------------------------------------------

/// What comes of an exchange. Its job looks for it for a moment; then another one goes on.
struct ForwardCompute::Answer {
  /// True: the job that asked still looks.
  bool put(Result<std::vector<Payload>> came) {
    std::lock_guard lock(mutex);
    parts = std::move(came);
    here.store(true, std::memory_order_release);
    return !left;
  }
  bool look() {
    const TimePoint end = now() + limits::kRankLook;
    while (!here.load(std::memory_order_acquire) && now() < end) _mm_pause();
    std::lock_guard lock(mutex);
    left = !parts.has_value();
    return !left;
  }

  std::mutex mutex;
  std::optional<Result<std::vector<Payload>>> parts;  // guarded by mutex until it is here
  bool left = false;                                  // guarded by mutex
  std::atomic<bool> here{false};
};

static_assert(RankExchange::kAnyBytes == PartsExchange::kAny, "counts go on as they are");

/// Whether all parts are here. If not, a later job goes on with them, and keeps `news` meanwhile.
Result<bool> ForwardCompute::exchange(Run& run, const std::shared_ptr<ShardNews>& news) {
  if (run.given_up) return unavailable("nobody wants it any more");
  RankExchange& e = run.step.exchange;
  const auto answer = std::make_shared<Answer>();
  exchanged_ = now().time_since_epoch().count();
  ++exchanging_;
  ranks_->start({run.id, e.index, std::move(e.to), e.bytes},
                [this, answer, news, step = run.id](Result<std::vector<Payload>> parts) {
                  --exchanging_;
                  if (answer->put(std::move(parts))) return;
                  (void)device_.submit(
                      [this, answer, news, step] { go_on(step, news, std::move(answer->parts)); },
                      Device::Room::kAlways);
                });
  if (!answer->look()) return false;
  if (!answer->parts->ok()) return answer->parts->error();
  e.from = std::move(**answer->parts);
  return true;
}

/// In a later job, perhaps with what the other ranks have sent.
void ForwardCompute::go_on(StepId step, const std::shared_ptr<ShardNews>& news,
                           std::optional<Result<std::vector<Payload>>> parts) {
  const auto it = runs_.find(step);
  if (it == runs_.end() || it->second->news.lock() != news) return;  // it has been released
  Run& run = *it->second;
  work_on(run, [&]() -> Status {
    if (run.given_up) return unavailable("nobody wants it any more");
    if (parts && !parts->ok()) return parts->error();
    if (parts) run.step.exchange.from = std::move(**parts);
    return advance(run);
  });
}

bool ForwardCompute::hears_ranks(TimePoint now) const {
  const TimePoint newest{Duration(exchanged_.load())};
  return exchanging_ == 0 || now - newest < limits::kExpertSilence;
}

void ForwardCompute::Run::computed(const Status& done) {
  goes_on = done.ok() && (step.among_ranks || step.missing.empty());
  if (goes_on) return;
  news.lock()->computed(id, done.ok() ? ComputeOutcome{} : failed_with(done.error()));
}

void ForwardCompute::Run::go_on() {
  if (!goes_on) return;
  compute.work_on(*this, [&]() -> Status { return compute.advance(*this); });
}

ComputeOutcome ForwardCompute::outcome_of(Run& run) {
  ComputeOutcome outcome;
  outcome.done = true;
  outcome.digests = run.step.digests;
  if (options_.last_stage) {
    outcome.sequences = std::move(run.step.results);
    return outcome;
  }
  outcome.hidden = forward_.hidden_of(run.step);
  return outcome;
}

}  // namespace troupe
