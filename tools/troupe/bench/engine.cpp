#include "tools/troupe/bench/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "runtime/clock.h"
#include "tools/troupe/bench/printed.h"
#include "tools/troupe/bench/summary.h"

namespace troupe::bench {
namespace {

constexpr int kPercentages[] = {10, 25, 50, 75, 90, 99};

/// What the cluster's threads find out, for the one that waits.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t running = 0, over = 0, prompt_tokens = 0, output_tokens = 0;
  std::optional<Error> error;

  void add(const GenerationEvent& event) {
    const std::lock_guard lock(mutex);
    prompt_tokens += event.prompt_tokens.size();
    output_tokens += event.tokens.size();
    if (event.error && !error) error = event.error;
    if (!event.error && !event.request_done) return;
    --running;
    ++over;
    changed.notify_all();
  }
  /// Until fewer run.
  void wait_for_less(std::uint64_t than) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running < than; });
  }
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, values.size()));
}

double per_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

Result<EngineRun> answer_all(Cluster& cluster, const std::vector<GenerationRequest>& requests,
                             const std::function<void(std::uint64_t)>& on_end) {
  const auto answers = std::make_shared<Answers>();
  const auto told = [&] {
    const std::lock_guard lock(answers->mutex);
    if (on_end) on_end(answers->over);
    return answers->running;
  };
  const TimePoint began = now();
  std::optional<Error> refused;
  for (std::size_t i = 0; i < requests.size() && !refused;) {
    {
      const std::lock_guard lock(answers->mutex);
      if (answers->error) break;
      ++answers->running;
    }
    const auto number = cluster.stream(
        requests[i], [answers](const GenerationEvent& event) { answers->add(event); });
    if (number.ok()) {
      ++i;
      continue;
    }
    std::uint64_t running = 0;
    {
      const std::lock_guard lock(answers->mutex);
      running = --answers->running;
    }
    // As many wait as may: the next one when another is over.
    if (number.error().code != ErrorCode::kResourceExhausted || running == 0)
      refused = number.error();
    else
      answers->wait_for_less(running);
    told();
  }
  while (const std::uint64_t running = told()) answers->wait_for_less(running);
  const std::lock_guard lock(answers->mutex);
  if (refused) return *refused;
  if (answers->error) return *answers->error;
  return EngineRun{std::chrono::duration<double>(now() - began).count(), requests.size(),
                   answers->prompt_tokens, answers->output_tokens};
}

nlohmann::json throughput_json(const EngineRun& run) {
  const std::uint64_t tokens = run.prompt_tokens + run.output_tokens;
  return {{"elapsed_time", run.elapsed_s},
          {"num_requests", run.requests},
          {"total_num_tokens", tokens},
          {"requests_per_second", per_second(run.requests, run.elapsed_s)},
          {"tokens_per_second", per_second(tokens, run.elapsed_s)}};
}

std::string throughput_text(const EngineRun& run) {
  return printed("Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n",
                 per_second(run.requests, run.elapsed_s),
                 per_second(run.prompt_tokens + run.output_tokens, run.elapsed_s),
                 per_second(run.output_tokens, run.elapsed_s)) +
         "Total num prompt tokens:  " + std::to_string(run.prompt_tokens) +
         "\nTotal num output tokens:  " + std::to_string(run.output_tokens) + "\n";
}

nlohmann::json latency_json(const std::vector<double>& latencies_s) {
  std::vector<double> sorted = latencies_s;
  std::sort(sorted.begin(), sorted.end());
  nlohmann::json percentiles = nlohmann::json::object();
  for (const int percent : kPercentages)
    percentiles[std::to_string(percent)] = percentile(sorted, percent);
  return {{"avg_latency", mean_of(latencies_s)},
          {"latencies", latencies_s},
          {"percentiles", std::move(percentiles)}};
}

std::string latency_text(const std::vector<double>& latencies_s) {
  std::vector<double> sorted = latencies_s;
  std::sort(sorted.begin(), sorted.end());
  std::string text = printed("Avg latency: %.6f seconds\n", mean_of(latencies_s));
  for (const int percent : kPercentages)
    text +=
        printed("%d%% percentile latency: %.6f seconds\n", percent, percentile(sorted, percent));
  return text;
}

}  // namespace troupe::bench
