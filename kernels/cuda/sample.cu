#include "kernels/sample.h"

#include <cassert>
#include <vector>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "kernels/sample_row.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A call as the kernel has it.
struct SampleJob {
  SampleCall call;
  const AdjustedToken* adjusted;  ///< [call.adjusted]
  const std::uint32_t* mask;      ///< [mask_words(vocab)]; null: none
  float* scores;                  ///< [vocab] adjusted and masked; null: those of the logits
  TokenId* order;                 ///< two of [vocab] for candidates; null: none are sorted
};

/// A CTA for each call. What stands alone (weights, counts, maxima) all threads compute; a sum
/// whose order is defined one thread adds up, a tile of shared memory at a time. That is what
/// bounds it: an addition of float64 after the other for each token of the vocabulary. Bytes: 4 a
/// token of the row (V3's: 517 KB), which a few passes read, those after the first from the second
/// level cache; with penalties or a mask as many of scores, and a bit of the mask. Operations, a
/// token: an exp for each pass that needs weights, a few of integers for each digit of a sort.
struct SampleRows {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr std::int64_t kTile = 1024;
  static constexpr int kDigits = 16, kDigitBits = 4;  ///< of a key that is sorted by
  static constexpr int kLanes = 8;                    ///< of a log_softmax
  static constexpr std::size_t kTileBytes = kTile * sizeof(double);
  static constexpr std::size_t kCountsBytes = kDigits * kThreads * sizeof(std::uint32_t);
  static constexpr std::size_t kCountsAt = kTileBytes;
  static constexpr std::size_t kRoomAt = kCountsAt + kCountsBytes;  ///< a word for each warp
  static constexpr std::size_t kSumsAt = kRoomAt + kWarps * 8;
  static constexpr std::size_t kEndAt = kSumsAt + kLanes * 8;
  static constexpr std::size_t kSharedBytes = kEndAt + 2 * 8;
  static constexpr bool kMeets = true;

  Tensor logits;
  const SampleJob* jobs;
  SampleResults results;

  DEVICE void operator()(Cta& cta) const {
    const SampleJob& job = jobs[cta.block_x()];
    const SampleCall& call = job.call;
    const auto* const row = head_at<const float>(logits, call.row);
    const bool finite = all_finite(cta, row);
    const TokenId token = call.draws() ? draw(cta, job, row) : call.target;
    float logprob = 0;
    if (call.top >= 0) logprob = show_logprobs(cta, call, row, token);
    if (cta.thread() == 0) results.of[cta.block_x()] = {token, logprob, finite ? 1 : 0};
  }

 private:
  // --- What all threads of a CTA find out together: each calls, each gets the answer ---

  template <class Join>
  DEVICE std::uint64_t joined(Cta& cta, std::uint64_t mine, const Join& join) const {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
      mine = join(mine, cta.shuffle(0xffffffffu, mine, cta.lane() ^ apart));
    const Shared<std::uint64_t> room = cta.shared<std::uint64_t>(kRoomAt, kWarps);
    cta.sync();  // nobody reads what was there before
    if (cta.lane() == 0) room[cta.warp()] = mine;
    cta.sync();
    std::uint64_t all = room[0];
    for (int w = 1; w < kWarps; ++w) all = join(all, static_cast<std::uint64_t>(room[w]));
    return all;
  }
  DEVICE std::uint64_t largest(Cta& cta, std::uint64_t mine) const {
    return joined(cta, mine, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
  }
  DEVICE std::uint64_t total(Cta& cta, std::uint64_t mine) const {
    return joined(cta, mine, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  }

  /// What the threads before this one have, together; and all of them.
  DEVICE std::int64_t before(Cta& cta, std::int64_t mine, std::int64_t& all) const {
    std::int64_t sum = mine;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int from = cta.lane() >= apart ? cta.lane() - apart : cta.lane();
      const std::int64_t other = cta.shuffle(0xffffffffu, sum, from);
      if (cta.lane() >= apart) sum += other;
    }
    const Shared<std::int64_t> room = cta.shared<std::int64_t>(kRoomAt, kWarps);
    cta.sync();
    if (cta.lane() == 31) room[cta.warp()] = sum;
    cta.sync();
    std::int64_t first = 0;
    all = 0;
    for (int w = 0; w < kWarps; ++w) {
      const std::int64_t of_warp = room[w];
      if (w < cta.warp()) first += of_warp;
      all += of_warp;
    }
    return first + sum - mine;
  }

  DEVICE bool all_finite(Cta& cta, const float* row) const {
    std::uint64_t bad = 0;
    for (std::int64_t i = cta.thread(); i < logits.dim; i += kThreads)
      bad |= (std::bit_cast<std::uint32_t>(row[i]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    return largest(cta, bad) == 0;
  }

  /// Larger for a higher number; the same for both zeros.
  DEVICE static std::uint32_t key_of(float x) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7f800000u) == 0) bits = 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  /// Larger for what comes first by rank.
  DEVICE static std::uint64_t rank_of(float score, std::int64_t id) {
    return std::uint64_t{key_of(score)} << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
  }
  DEVICE static TokenId token_of(std::uint64_t rank) {
    return static_cast<TokenId>(0xffffffffu - static_cast<std::uint32_t>(rank));
  }

  /// The first by rank of those after `last`.
  DEVICE TokenId first_after(Cta& cta, const float* scores, std::uint64_t& last) const {
    std::uint64_t best = 0;
    for (std::int64_t i = cta.thread(); i < logits.dim; i += kThreads) {
      const std::uint64_t rank = rank_of(sampling::without_nan(scores[i]), i);
      if (rank < last && rank > best) best = rank;
    }
    last = largest(cta, best);
    return token_of(last);
  }

  struct Walk {
    double sum;
    std::int64_t count;
    bool stopped;
  };
  /// Adds up weight(0), weight(1), ... as far as the first sum above the goal, or that reaches it.
  template <class WeightOf>
  DEVICE Walk walk(Cta& cta, std::int64_t count, double goal, bool reaches,
                   const WeightOf& weight) const {
    const Shared<double> tile = cta.shared<double>(0, kTile);
    const Shared<double> sum_room = cta.shared<double>(kEndAt, 1);
    const Shared<std::int64_t> end_room = cta.shared<std::int64_t>(kEndAt + 8, 1);
    const auto ends = [&](double sum) { return sum > goal || (reaches && sum >= goal); };
    Walk at = {0, 0, false};
    while (at.count < count && !at.stopped) {
      const std::int64_t first = at.count;
      const auto here = static_cast<int>(count - first < kTile ? count - first : kTile);
      for (int i = cta.thread(); i < here; i += kThreads) tile[i] = weight(first + i);
      cta.sync();
      if (cta.thread() == 0) {
        double sum = at.sum;
#pragma unroll 8
        for (int i = 0; i < here; ++i) sum += tile[i];
        int end = here;
        if (ends(sum)) {  // sums never fall, so it is in this tile
          sum = at.sum;
          end = 0;
          do sum += tile[end++];
          while (!ends(sum));
        }
        sum_room[0] = sum;
        end_room[0] = (first + end) * 2 + (ends(sum) ? 1 : 0);
      }
      cta.sync();
      const std::int64_t end = end_room[0];
      at = {sum_room[0], end / 2, end % 2 != 0};
    }
    return at;
  }

  // --- The token ---

  DEVICE TokenId draw(Cta& cta, const SampleJob& job, const float* row) const {
    const SampleCall& call = job.call;
    const float* scores = row;
    if (job.scores != nullptr) {
      for (std::int64_t i = cta.thread(); i < logits.dim; i += kThreads)
        job.scores[i] = sampling::without_nan(row[i]);
      cta.sync();
      for (std::int32_t i = cta.thread(); i < call.adjusted; i += kThreads) {
        float& score = job.scores[job.adjusted[i].token];
        score = sampling::adjusted(call, score, job.adjusted[i]);
      }
      cta.sync();
      if (job.mask != nullptr) {
        for (std::int64_t i = cta.thread(); i < logits.dim; i += kThreads)
          job.scores[i] = sampling::masked(job.scores[i], job.mask, i);
        cta.sync();
      }
      scores = job.scores;
    }
    std::uint64_t last = ~std::uint64_t{0};
    const TokenId best = first_after(cta, scores, last);
    const float highest = sampling::without_nan(scores[best]);
    if (sampling::greedy(call) || !sampling::leaves_choice(highest)) return best;
    std::uint64_t candidates = 0;
    const auto weight = [&](std::int64_t id) {
      return sampling::weight(call, sampling::without_nan(scores[id]), highest);
    };
    const Walk all =
        walk(cta, logits.dim, static_cast<double>(__builtin_inff()), false, [&](std::int64_t id) {
          const double w = weight(id);
          if (w > 0) ++candidates;
          return w;
        });
    if (!(all.sum > 0)) return best;
    if (job.order != nullptr) {
      const auto found = static_cast<std::int64_t>(total(cta, candidates));
      return draw_sorted(cta, job, scores, highest, all.sum, found);
    }
    const Walk drawn = walk(cta, logits.dim, call.uniform * all.sum, false, weight);
    return drawn.stopped ? static_cast<TokenId>(drawn.count - 1) : best;
  }

  /// Sorts those within 8 temperatures of the best, mostly a few, then, if top_k and top_p keep
  /// more, within 24, and then all.
  DEVICE TokenId draw_sorted(Cta& cta, const SampleJob& job, const float* scores, float highest,
                             double all, std::int64_t candidates) const {
    const SampleCall& call = job.call;
    const bool cut = call.top_k > 0 && call.top_k < candidates;
    const std::int64_t most = cut ? call.top_k : candidates;
    const auto weight = [&](std::int64_t i) {
      return sampling::weight(call, sampling::without_nan(scores[job.order[i]]), highest);
    };
    const double infinity = static_cast<double>(__builtin_inff());
    for (double within = 8;; within = within < 24 ? 24 : infinity) {
      const std::int64_t found = sort_candidates(cta, job, scores, highest, within);
      const std::int64_t count = found < most ? found : most;
      if (count < most && (cut || !(call.top_p < 1.0f))) continue;
      Walk kept = {all, count, false};
      if (cut) kept.sum = walk(cta, count, infinity, false, weight).sum;
      if (call.top_p < 1.0f) {
        kept = walk(cta, count, static_cast<double>(call.top_p) * kept.sum, true, weight);
        if (!kept.stopped && count < most) continue;
      }
      return job.order[walk(cta, kept.count, call.uniform * kept.sum, false, weight).count - 1];
    }
  }

  /// The candidates that are so near the best go to job.order by rank. How many.
  DEVICE std::int64_t sort_candidates(Cta& cta, const SampleJob& job, const float* scores,
                                      float highest, double within) const {
    const SampleCall& call = job.call;
    const double lowest = -within * static_cast<double>(call.temperature);
    const std::int64_t share = ceil_div(logits.dim, kThreads), begin = cta.thread() * share;
    const std::int64_t end = begin + share < logits.dim ? begin + share : logits.dim;
    const auto is_one = [&](std::int64_t id) {
      const float score = sampling::without_nan(scores[id]);
      return static_cast<double>(score) - static_cast<double>(highest) >= lowest &&
             sampling::weight(call, score, highest) > 0;
    };
    std::int64_t mine = 0, found = 0;
    for (std::int64_t id = begin; id < end; ++id) mine += is_one(id) ? 1 : 0;
    std::int64_t at = before(cta, mine, found);
    for (std::int64_t id = begin; id < end; ++id)
      if (is_one(id)) job.order[at++] = static_cast<TokenId>(id);
    cta.sync();
    TokenId *from = job.order, *to = job.order + logits.dim;
    for (int bit = 0; bit < 32; bit += kDigitBits) {
      sort_by_digit(cta, scores, bit, from, to, found);
      TokenId* const sorted = to;
      to = from;
      from = sorted;
    }
    return found;
  }

  /// Falling by that digit of their keys; equal ones stay as they are.
  DEVICE void sort_by_digit(Cta& cta, const float* scores, int bit, const TokenId* from,
                            TokenId* to, std::int64_t count) const {
    const Shared<std::uint32_t> counts =
        cta.shared<std::uint32_t>(kCountsAt, kDigits * kThreads);  // [digit, thread]
    const std::int64_t share = ceil_div(count, kThreads);
    const std::int64_t begin = cta.thread() * share < count ? cta.thread() * share : count;
    const std::int64_t end = begin + share < count ? begin + share : count;
    const auto place = [&](std::int64_t i) {
      const std::uint32_t key = ~key_of(sampling::without_nan(scores[from[i]]));
      return static_cast<int>((key >> bit) % kDigits) * kThreads + cta.thread();
    };
    for (int digit = 0; digit < kDigits; ++digit) counts[digit * kThreads + cta.thread()] = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const int at = place(i);
      counts[at] = counts[at] + 1;
    }
    cta.sync();
    std::int64_t mine = 0, all = 0;
    for (int i = 0; i < kDigits; ++i) mine += counts[cta.thread() * kDigits + i];
    auto next = static_cast<std::uint32_t>(before(cta, mine, all));
    for (int i = 0; i < kDigits; ++i) {
      const std::uint32_t of_place = counts[cta.thread() * kDigits + i];
      counts[cta.thread() * kDigits + i] = next;
      next += of_place;
    }
    cta.sync();
    for (std::int64_t i = begin; i < end; ++i) {
      const int at = place(i);
      const std::uint32_t position = counts[at];
      counts[at] = position + 1;
      to[position] = from[i];
    }
    cta.sync();
  }

  // --- Log-probabilities ---

  DEVICE float show_logprobs(Cta& cta, const SampleCall& call, const float* row,
                             TokenId token) const {
    std::uint64_t last = ~std::uint64_t{0};
    const double highest =
        static_cast<double>(sampling::without_nan(row[first_after(cta, row, last)]));
    const double log_sum = log_f64(sum_of_exp(cta, row, highest));
    const auto shown = [&](float logit) {
      return sampling::shown_logprob(static_cast<double>(logit) - highest - log_sum);
    };
    TokenLogprob* const top = results.top + cta.block_x() * results.top_columns;
    last = ~std::uint64_t{0};
    for (std::int32_t i = 0; i < call.top && i < logits.dim; ++i) {
      const TokenId id = first_after(cta, row, last);
      if (cta.thread() == 0) top[i] = {id, shown(sampling::without_nan(row[id]))};
    }
    return shown(row[token]);
  }

  /// As log_softmax() adds them up: i % 8 by itself, ascending, then a binary tree.
  DEVICE double sum_of_exp(Cta& cta, const float* row, double highest) const {
    const Shared<double> tile = cta.shared<double>(0, kTile);
    double mine = 0;
    for (std::int64_t first = 0; first < logits.dim; first += kTile) {
      const auto here = static_cast<int>(logits.dim - first < kTile ? logits.dim - first : kTile);
      cta.sync();  // nobody reads what was there before
      for (int i = cta.thread(); i < here; i += kThreads) {
        const float logit = row[first + i];
        const double e = sampling::exp_or_zero(static_cast<double>(logit) - highest);
        tile[i] = logit == logit ? e : 0.0;
      }
      cta.sync();
      if (cta.thread() < kLanes) {
#pragma unroll 8
        for (int i = cta.thread(); i < here; i += kLanes) mine += tile[i];
      }
    }
    const Shared<double> sums = cta.shared<double>(kSumsAt, kLanes);
    if (cta.thread() < kLanes) sums[cta.thread()] = mine;
    cta.sync();
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::sample(Stream& stream, const Tensor& logits,
                               std::span<const SampleCall> calls, const SampleLists& lists,
                               const SampleResults& results) {
  Stream::Scope scope(stream);
  Scratch& scratch = stream.scratch();
  const auto vocab = static_cast<std::size_t>(logits.dim);
  const auto there = [&stream](auto list) {
    return list.empty() ? nullptr
                        : staged(stream, list.data(), static_cast<std::int64_t>(list.size()));
  };
  const AdjustedToken* const adjusted = there(lists.adjusted);
  const std::uint32_t* const masks = there(lists.masks);
  std::vector<SampleJob> jobs;
  jobs.reserve(calls.size());
  for (const SampleCall& call : calls) {
    assert(call.row >= 0 && call.row < logits.rows && call.top <= results.top_columns);
    const bool sorts =
        call.draws() && !sampling::greedy(call) && !sampling::keeps_all(call, logits.dim);
    const bool scores = call.adjusted > 0 || call.mask >= 0;
    jobs.push_back({call, call.adjusted > 0 ? adjusted + call.first_adjusted : nullptr,
                    call.mask >= 0 ? masks + call.mask * mask_words(logits.dim) : nullptr,
                    scores ? scratch.take<float>(vocab) : nullptr,
                    sorts ? scratch.take<TokenId>(2 * vocab) : nullptr});
  }
  const auto count = static_cast<std::int64_t>(calls.size());
  launch(stream, {count}, SampleRows{logits, staged(stream, jobs.data(), count), results});
}

}  // namespace troupe::kernels
