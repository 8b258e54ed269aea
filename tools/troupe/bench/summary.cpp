#include "tools/troupe/bench/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::bench {
namespace {

/// Seconds that are told one by one; a longer run is told in its first ones.
constexpr double kSecondsMax = 1e6;

bool meets(const RequestRecord& r, const Goals& goals) {
  return std::all_of(goals.begin(), goals.end(), [&](const auto& goal) {
    if (goal.first == "tpot" && r.at_once()) return false;
    const double value_s = goal.first == "ttft"   ? r.ttft_s
                           : goal.first == "tpot" ? r.tpot_s()
                                                  : r.latency_s;
    return value_s * 1000 <= goal.second;
  });
}

/// When one more is under way, or one less; one that ends as another begins is not with it.
using Changes = std::vector<std::pair<double, int>>;

/// Most requests under way at one moment.
std::uint64_t most_at_once(const std::vector<RequestRecord>& records) {
  Changes changes;
  for (const RequestRecord& r : records) {
    if (!r.ok) continue;
    changes.emplace_back(r.start_s, 1);
    changes.emplace_back(r.start_s + r.latency_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t running = 0, most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, running += change);
  return static_cast<std::uint64_t>(most);
}

/// Calls `take(moment)` for each piece of the answer.
template <class Take>
void each_piece(const RequestRecord& r, const Take& take) {
  if (r.pieces == 0) return;
  double at = r.start_s + r.ttft_s;
  take(at);
  for (const float gap : r.itls_s) take(at += gap);
}

void find_longest_gap(const RequestRecord& r, Summary& summary) {
  double at = r.start_s + r.ttft_s;
  for (const float gap : r.itls_s) {
    if (gap > summary.longest_gap_s) {
      summary.longest_gap_s = gap;
      summary.longest_gap_at_s = at;
    }
    at += gap;
  }
}

}  // namespace

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(
      std::clamp(std::floor(place), 0.0, static_cast<double>(sorted.size() - 1)));
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

Spread spread_of(std::vector<double> values_ms) {
  Spread spread;
  std::sort(values_ms.begin(), values_ms.end());
  if (!values_ms.empty()) {
    const auto count = static_cast<double>(values_ms.size());
    spread.mean = std::accumulate(values_ms.begin(), values_ms.end(), 0.0) / count;
    double squares = 0;
    for (const double v : values_ms) squares += (v - spread.mean) * (v - spread.mean);
    spread.std = std::sqrt(squares / count);
    spread.median = percentile(values_ms, 50);
  }
  spread.sorted = std::move(values_ms);
  return spread;
}

Summary summarize(const std::vector<RequestRecord>& records, double duration_s,
                  const Goals& goals) {
  Summary s;
  s.duration_s = duration_s;
  std::uint64_t good = 0;
  std::vector<double> ttft, tpot, itl, e2el, queue;
  for (const RequestRecord& r : records) {
    if (!r.started || r.cut) {
      ++s.unfinished;
      continue;
    }
    find_longest_gap(r, s);
    if (!r.ok) {
      ++s.failed;
      continue;
    }
    ++s.completed;
    s.input_tokens += r.prompt_tokens;
    s.output_tokens += r.output_tokens;
    s.counted_by_pieces += !r.usage_told;
    s.usage_doubtful += r.usage_doubtful;
    good += meets(r, goals);
    ttft.push_back(r.ttft_s * 1000);
    e2el.push_back(r.latency_s * 1000);
    queue.push_back((r.start_s - r.due_s) * 1000);
    s.at_once += r.at_once();
    if (r.at_once()) continue;
    if (r.output_tokens > 1) tpot.push_back(r.tpot_s() * 1000);
    for (const float gap : r.itls_s) itl.push_back(gap * 1000.0);
  }
  const double span = duration_s > 0 ? duration_s : 1;
  s.request_throughput = static_cast<double>(s.completed) / span;
  s.output_throughput = static_cast<double>(s.output_tokens) / span;
  s.total_token_throughput = static_cast<double>(s.input_tokens + s.output_tokens) / span;
  if (!goals.empty()) s.request_goodput = static_cast<double>(good) / span;
  if (s.completed + s.failed > 0)
    s.good_share = static_cast<double>(good) / static_cast<double>(s.completed + s.failed);
  s.ttft = spread_of(std::move(ttft));
  s.tpot = spread_of(std::move(tpot));
  s.itl = spread_of(std::move(itl));
  s.e2el = spread_of(std::move(e2el));
  s.queue = spread_of(std::move(queue));
  s.max_concurrent_requests = most_at_once(records);
  for (const Second& second : seconds_of(records, duration_s))
    s.max_output_tokens_per_s = std::max(s.max_output_tokens_per_s, second.output_tokens);
  return s;
}

std::vector<Second> seconds_of(const std::vector<RequestRecord>& records, double duration_s) {
  const double span = std::min(std::ceil(std::max(duration_s, 0.0)), kSecondsMax) + 1;
  std::vector<Second> seconds(static_cast<std::size_t>(span));
  const auto second_at = [&](double at) {
    return static_cast<std::size_t>(std::clamp(at, 0.0, span - 1));
  };
  Changes changes;
  for (const RequestRecord& r : records) {
    if (!r.started) continue;
    changes.emplace_back(r.start_s, 1);
    changes.emplace_back(r.ended_s, -1);
    // A piece may hold several tokens.
    const double tokens =
        r.pieces > 0 ? static_cast<double>(r.output_tokens) / static_cast<double>(r.pieces) : 0;
    each_piece(r, [&](double at) { seconds[second_at(at)].output_tokens += tokens; });
    if (!r.ok && !r.cut) ++seconds[second_at(r.ended_s)].failed;
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t running = 0;
  auto next = changes.begin();
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    std::int64_t most = running;
    for (; next != changes.end() && second_at(next->first) <= i; ++next)
      most = std::max(most, running += next->second);
    seconds[i].running = static_cast<std::uint64_t>(most);
  }
  return seconds;
}

}  // namespace troupe::bench
