#include "tests/kernels/twin_sample.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "kernels/scalar_math.h"
#include "kernels/softmax_logprob.h"

namespace troupe::kernels {
namespace {

/// Written to be read: all candidates are sorted, and each weight is computed where it is added.
TokenId chosen_token(const SampleCall& c, std::vector<float> scores,
                     const std::vector<AdjustedToken>& adjusted,
                     const std::vector<std::uint32_t>& masks) {
  for (float& x : scores) x = std::isnan(x) ? -INFINITY : x;
  for (std::int32_t i = c.first_adjusted; i < c.first_adjusted + c.adjusted; ++i) {
    const auto [token, count, bias] = adjusted[static_cast<std::size_t>(i)];
    float& x = scores[static_cast<std::size_t>(token)];
    x += bias;
    if (std::isnan(x)) x = -INFINITY;
    if (count < 0) continue;
    x = x > 0 ? x / c.repetition_penalty : x * c.repetition_penalty;
    x -= c.frequency_penalty * static_cast<float>(count);
    if (count > 0) x -= c.presence_penalty;
    if (std::isnan(x)) x = -INFINITY;
  }
  const std::size_t first_word = static_cast<std::size_t>(c.mask) * ((scores.size() + 31) / 32);
  for (std::size_t id = 0; id < scores.size() && c.mask >= 0; ++id) {
    const bool allowed = masks[first_word + id / 32] >> id % 32 & 1;
    scores[id] = allowed ? std::max(scores[id], -FLT_MAX) : -INFINITY;
  }
  std::vector<TokenId> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto by_rank = [&](TokenId a, TokenId b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  };
  const TokenId best = *std::min_element(ids.begin(), ids.end(), by_rank);
  const double highest = static_cast<double>(scores[static_cast<std::size_t>(best)]);
  if (!(c.temperature >= 1e-5f) || !std::isfinite(highest) || highest == -FLT_MAX) return best;
  const auto weight = [&](TokenId id) {
    const double w = exp_f64((static_cast<double>(scores[static_cast<std::size_t>(id)]) - highest) /
                             static_cast<double>(c.temperature));
    return w < static_cast<double>(c.min_p) ? 0 : w;
  };
  const auto sum = [&] {
    double total = 0;
    for (const TokenId id : ids) total += weight(id);
    return total;
  };
  double kept = sum();
  if (!(kept > 0)) return best;
  const bool all =
      (c.top_k <= 0 || c.top_k >= static_cast<std::int32_t>(ids.size())) && !(c.top_p < 1);
  if (!all) {
    std::erase_if(ids, [&](TokenId id) { return !(weight(id) > 0); });
    std::stable_sort(ids.begin(), ids.end(), by_rank);
    if (c.top_k > 0 && static_cast<std::size_t>(c.top_k) < ids.size()) {
      ids.resize(static_cast<std::size_t>(c.top_k));
      kept = sum();
    }
    if (c.top_p < 1) {
      const double goal = static_cast<double>(c.top_p) * kept;
      std::size_t count = 0;
      for (kept = 0; count < ids.size() && (count == 0 || kept < goal); ++count)
        kept += weight(ids[count]);
      ids.resize(count);
    }
  }
  double so_far = 0;
  for (const TokenId id : ids) {
    so_far += weight(id);
    if (so_far > c.uniform * kept) return id;
  }
  return all ? best : ids.back();
}

}  // namespace

SampleAnswer exact_sample(const SampleCall& c, const std::vector<float>& row,
                          const std::vector<AdjustedToken>& adjusted,
                          const std::vector<std::uint32_t>& masks) {
  SampleAnswer a;
  a.result.token = c.draws() ? chosen_token(c, row, adjusted, masks) : c.target;
  a.result.finite = std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
  if (c.top < 0) return a;
  const LogSoftmax softmax = log_softmax(row.data(), row.size());
  const auto shown = [&](float x) {
    const double p = softmax.logprob(x);
    return p > static_cast<double>(kLogprobMin) ? static_cast<float>(p) : kLogprobMin;
  };
  a.result.logprob = shown(row[static_cast<std::size_t>(a.result.token)]);
  std::vector<TokenLogprob> all;
  for (const float x : row)
    all.push_back({static_cast<TokenId>(all.size()), std::isnan(x) ? -INFINITY : x});
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.logprob > other.logprob; });
  all.resize(std::min(all.size(), static_cast<std::size_t>(c.top)));
  for (auto& entry : all) entry.logprob = shown(entry.logprob);
  a.top = all;
  return a;
}

}  // namespace troupe::kernels
