#include "actors/replica/plan_step.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "actors/replica/backfill.h"

namespace troupe {
namespace {

std::int32_t blocks_missing(const PlanSequence& sequence, std::int32_t positions,
                            std::int32_t block_size) {
  return std::max(0, blocks_for(positions, block_size) - sequence.blocks);
}

/// A prompt that lacks more chunks than these leaves half of each to the prompts behind it.
constexpr std::int32_t kLongPromptChunks = 4;
/// Of a step's rows for prompts, what those have over which another one goes ahead: one of so many.
constexpr std::int32_t kYieldingPart = 8;

bool is_prompt(const PlanSequence& s) { return !s.busy && !s.decodes(); }

class Planner {
 public:
  Planner(std::span<const PlanSequence> running, std::span<const PlanSequence> waiting,
          const PlanLimits& limits, const PlanQuestions& ask)
      : running_(running),
        waiting_(waiting.begin(), waiting.end()),
        found_(waiting.size()),
        limits_(limits),
        ask_(ask),
        rows_left_(limits.rows_a_step),
        prompt_rows_left_(limits.prompt_rows_a_step),
        yielding_rows_left_(std::max(1, limits.prompt_rows_a_step / kYieldingPart)),
        sequences_left_(limits.sequences_a_step),
        blocks_free_(limits.blocks_free) {}

  StepChoice plan() {
    // One that is in another step, too: what that is given up for counts in this one as well.
    for (const PlanSequence& sequence : running_)
      if (!sequence.decodes() && !sequence.suspect) note_ahead(sequence);
    newcomer_ = find_newcomer();
    if (newcomer_ != nullptr) note_ahead(*newcomer_);
    if (plan_running() && choice_.preempted.empty()) admit_waiting();
    return std::move(choice_);
  }

 private:
  /// False if a sequence lacks blocks.
  bool plan_running() {
    std::int32_t reserved = rows_of_decoding();
    // From `victim` on every sequence is preempted, in a step, or without blocks.
    std::size_t victim = running_.size();
    for (std::size_t i = 0; i < victim; ++i) {
      const PlanSequence& sequence = running_[i];
      if (sequence.busy) continue;
      if (rows_left_ == 0 || sequences_left_ == 0) return true;
      const std::int32_t missing = sequence.length - sequence.computed;
      std::int32_t rows = 1;
      if (missing == 1) {
        reserved = std::max(0, reserved - 1);
      } else {
        rows = prompt_rows(running_, i, rows_left_ - reserved);
        if (rows <= 0) continue;
      }
      while (rows_that_fit(sequence) < 1 && victim > i + 1) preempt(running_[--victim]);
      rows = std::min(rows, rows_that_fit(sequence));
      if (rows < 1) return false;
      add(sequence, rows);
    }
    return true;
  }

  void admit_waiting() {
    std::int32_t blocks = blocks_for_newcomers();
    std::int32_t room = limits_.sequences_running - static_cast<std::int32_t>(running_.size());
    Backfill backfill;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (room <= 0 || rows_left_ == 0 || prompt_rows_left_ == 0 || sequences_left_ == 0) return;
      if (!backfill.admits(waiting_[i])) continue;
      const KvPrefix found = look_up(i);
      if (blocks_for_newcomer(i) > blocks) {
        backfill.hold(waiting_[i]);
        continue;
      }
      // Of those behind it no more than there are places share the rows.
      const auto joining = std::min(waiting_.size(), i + static_cast<std::size_t>(room));
      const std::int32_t rows = prompt_rows(std::span(waiting_).first(joining), i, rows_left_);
      if (rows == 0) continue;
      for (const PlanSequence* held : backfill.held()) choice_.backfilled.push_back(held->key);
      blocks -= blocks_for_newcomer(i);
      blocks_free_ -= found.idle;
      add(waiting_[i], rows);
      choice_.rows.back().found = found;
      --room;
    }
  }

  /// What a waiting one finds counts as computed from then on.
  KvPrefix look_up(std::size_t index) {
    if (!found_[index]) {
      found_[index] = ask_.cached(waiting_[index].key);
      waiting_[index].blocks = found_[index]->blocks;
      waiting_[index].computed = found_[index]->blocks * limits_.block_size;
    }
    return *found_[index];
  }

  /// Those that it finds idle cannot be taken any more either.
  std::int32_t blocks_for_newcomer(std::size_t index) {
    const KvPrefix found = look_up(index);
    return found.idle + blocks_missing(waiting_[index], waiting_[index].length, limits_.block_size);
  }

  /// What the running ones know already must fit too, or a newcomer would soon be preempted.
  std::int32_t blocks_for_newcomers() const {
    std::int32_t blocks = limits_.blocks_free;
    for (const PlanSequence& sequence : running_)
      blocks -= blocks_missing(sequence, sequence.length, limits_.block_size);
    return blocks;
  }

  /// Rows for the prompt at `index` of the running or of the waiting ones.
  std::int32_t prompt_rows(std::span<const PlanSequence> among, std::size_t index,
                           std::int32_t left) {
    const std::int32_t missing = among[index].length - among[index].computed;
    left = std::min(left, prompt_rows_left_);
    if (yields(among[index])) left = std::min(left, yielding_rows_left_);
    if (left <= 1) return took(among[index], std::min(missing, left));
    const bool is_long = missing / kLongPromptChunks >= limits_.prompt_rows_a_step;
    std::int32_t behind = 0, yielding = 0;
    const auto count = [&](const PlanSequence& s) {
      if (!is_prompt(s) || (!is_long && s.owner == among[index].owner)) return;
      (yields(s) ? yielding : behind) += std::min(s.length - s.computed, left);
    };
    for (std::size_t i = index + 1; i < among.size() && behind < left; ++i) count(among[i]);
    if (among.data() == running_.data() && newcomer_ != nullptr) count(*newcomer_);
    if (!yields(among[index])) yielding = std::min(yielding, yielding_rows_left_);
    const std::int32_t leaves = std::min(behind + yielding, left / 2);
    return took(among[index], std::min(missing, left - leaves));
  }

  std::int32_t took(const PlanSequence& sequence, std::int32_t rows) {
    if (yields(sequence)) yielding_rows_left_ -= rows;
    return rows;
  }

  void note_ahead(const PlanSequence& prompt) { ahead_ = std::min(ahead_, goes_ahead_of(prompt)); }
  bool yields(const PlanSequence& sequence) const { return ahead_ <= sequence.reach; }

  /// Who joins next; null: nobody can.
  const PlanSequence* find_newcomer() {
    if (static_cast<std::int32_t>(running_.size()) >= limits_.sequences_running) return nullptr;
    const std::int32_t blocks = blocks_for_newcomers();
    Backfill backfill;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (!backfill.admits(waiting_[i])) continue;
      if (blocks_for_newcomer(i) <= blocks) return &waiting_[i];
      backfill.hold(waiting_[i]);
    }
    return nullptr;
  }

  std::int32_t rows_of_decoding() const {
    const auto decoding =
        std::count_if(running_.begin(), running_.end(),
                      [](const PlanSequence& s) { return !s.busy && s.decodes(); });
    return std::min(static_cast<std::int32_t>(decoding), limits_.sequences_a_step);
  }

  std::int32_t rows_that_fit(const PlanSequence& sequence) const {
    const std::int64_t positions =
        (static_cast<std::int64_t>(sequence.blocks) + blocks_free_) * limits_.block_size;
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(positions - sequence.computed, limits_.rows_a_step));
  }

  /// Blocks that several hold come free with the last of them.
  void preempt(const PlanSequence& sequence) {
    if (sequence.busy || sequence.blocks == 0) return;
    choice_.preempted.push_back(sequence.key);
    const std::int32_t freed = ask_.freed(choice_.preempted);
    blocks_free_ += freed - std::exchange(freed_, freed);
  }

  void add(const PlanSequence& sequence, std::int32_t rows) {
    const std::int32_t blocks =
        blocks_missing(sequence, sequence.computed + rows, limits_.block_size);
    assert(rows >= 1 && rows <= rows_left_ && blocks <= blocks_free_);
    choice_.rows.push_back({sequence.key, rows, blocks});
    blocks_free_ -= blocks;
    rows_left_ -= rows;
    if (!sequence.decodes()) prompt_rows_left_ -= rows;
    --sequences_left_;
  }

  std::span<const PlanSequence> running_;
  std::vector<PlanSequence> waiting_;
  std::vector<std::optional<KvPrefix>> found_;  // of each waiting one that was looked up
  const PlanLimits& limits_;
  const PlanQuestions& ask_;
  std::int32_t freed_ = 0;  // by all that are preempted
  std::int32_t rows_left_, prompt_rows_left_, yielding_rows_left_, sequences_left_, blocks_free_;
  const PlanSequence* newcomer_ = nullptr;                  // of the waiting ones
  double ahead_ = std::numeric_limits<double>::infinity();  // the least of goes_ahead_of()
  StepChoice choice_;
};

}  // namespace

double goes_ahead_of(const PlanSequence& sequence) {
  constexpr double kLessThanATurn = 1e-12;
  return std::max(sequence.ends, 2 * sequence.reach + kLessThanATurn);
}

StepChoice plan_step(std::span<const PlanSequence> running, std::span<const PlanSequence> waiting,
                     const PlanLimits& limits, const PlanQuestions& ask) {
  return Planner(running, waiting, limits, ask).plan();
}

}  // namespace troupe
