#include <algorithm>
#include <cmath>
#include <map>

#include "tools/troupe/bench/printed.h"
#include "tools/troupe/bench/report.h"

namespace troupe::bench {
namespace {

constexpr std::size_t kColumns = 50;
/// Different errors, and marks, that are told; the others are counted.
constexpr std::size_t kErrorsTold = 10, kMarksTold = 20;

std::string headline(const std::string& words, char fill) {
  const std::size_t room = kColumns - std::min(kColumns, words.size());
  return std::string(room / 2, fill) + words + std::string(room - room / 2, fill) + "\n";
}

std::string line(const std::string& name, double value) {
  return printed("%-40s %-10.2f\n", name.c_str(), value);
}

std::string line(const std::string& name, std::uint64_t value) {
  return printed("%-40s %-10llu\n", name.c_str(), static_cast<unsigned long long>(value));
}

std::string spread_lines(const RunReport& report, const Metric& metric) {
  const Spread& spread = report.summary.*metric.spread;
  const std::string unit = std::string(" ") + metric.name + " (ms):";
  std::string text = headline(metric.headline, '-');
  text += line("Mean" + unit, spread.mean) + line("Median" + unit, spread.median);
  for (const double p : report.facts.percentiles)
    text += line("P" + percent_name(p) + unit, percentile(spread.sorted, p));
  return text;
}

/// What went wrong, the most frequent first.
std::string error_lines(const RunReport& report) {
  std::map<std::string, std::uint64_t> counts;
  for (const RequestRecord& r : report.records)
    if (r.started && !r.ok && !r.cut) ++counts[r.error];
  std::vector<std::pair<std::string, std::uint64_t>> errors(counts.begin(), counts.end());
  std::stable_sort(errors.begin(), errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(errors.size(), kErrorsTold); ++i)
    text += printed("%6llu x ", static_cast<unsigned long long>(errors[i].second)) +
            errors[i].first + "\n";
  if (errors.size() > kErrorsTold)
    text += "       and " + std::to_string(errors.size() - kErrorsTold) + " other errors\n";
  return text.empty() ? "" : headline("Errors", '-') + text;
}

std::string mark_lines(const RunReport& report) {
  std::string text;
  for (std::size_t i = 0; i < std::min(report.marks.size(), kMarksTold); ++i) {
    const Mark& mark = report.marks[i];
    text += printed("%8.2f s  ", mark.at_s) + mark.kind + ": " + mark.text + "\n";
  }
  if (report.marks.size() > kMarksTold)
    text += "       and " + std::to_string(report.marks.size() - kMarksTold) + " more\n";
  return text.empty() ? "" : headline("Cluster Events", '-') + text;
}

/// Where the counts come from, where a reader might think otherwise.
std::string notes(const RunReport& report) {
  const Summary& s = report.summary;
  std::string text;
  if (report.interrupted)
    text += "The run was ended early; " + std::to_string(s.unfinished) +
            " requests were not sent or not answered whole.\n";
  if (s.counted_by_pieces > 0)
    text += "Output tokens of " + std::to_string(s.counted_by_pieces) +
            " requests are counted from the pieces of the stream, not from the server's usage.\n";
  if (s.usage_doubtful > 0)
    text += "The server's usage contradicts what it sent for " + std::to_string(s.usage_doubtful) +
            " requests.\n";
  if (s.at_once > 0) text += at_once_note(s) + "\n";
  if (report.killed) {
    text += std::to_string(*report.killed) + " workers were killed; " + std::to_string(s.failed) +
            " requests failed.\n";
    text += printed("The longest gap between tokens was %.3f s, %.2f s after the beginning.\n",
                    s.longest_gap_s, s.longest_gap_at_s);
  }
  if (!report.facts.lengths.empty()) text += report.facts.lengths + "\n";
  return text + report.headroom.text() + "\n";
}

}  // namespace

std::string at_once_note(const Summary& summary) {
  return "All tokens of an answer came at one moment for " + std::to_string(summary.at_once) +
         " requests: they have no time per token (TPOT, ITL) and meet no goal of it.";
}

std::string percent_name(double percent) {
  std::string text = printed("%.6g", percent);
  return text;
}

std::string rate_name(double rate) { return std::isinf(rate) ? "inf" : printed("%.6g", rate); }

std::string report_text(const RunReport& report) {
  const Summary& s = report.summary;
  const RunFacts& facts = report.facts;
  std::string text = headline(" Serving Benchmark Result ", '=');
  text += line("Successful requests:", s.completed) + line("Failed requests:", s.failed);
  if (facts.max_concurrency > 0)
    text += line("Maximum request concurrency:", facts.max_concurrency);
  if (!std::isinf(facts.request_rate))
    text += line("Request rate configured (RPS):", facts.request_rate);
  text += line("Benchmark duration (s):", s.duration_s);
  text += line("Total input tokens:", s.input_tokens);
  text += line("Total generated tokens:", s.output_tokens);
  text += line("Request throughput (req/s):", s.request_throughput);
  if (s.request_goodput) text += line("Request goodput (req/s):", *s.request_goodput);
  text += line("Output token throughput (tok/s):", s.output_throughput);
  text += line("Peak output token throughput (tok/s):", s.max_output_tokens_per_s);
  text += line("Peak concurrent requests:", static_cast<double>(s.max_concurrent_requests));
  text += line("Total token throughput (tok/s):", s.total_token_throughput);
  for (const Metric& metric : kMetrics)
    if (std::count(facts.metrics.begin(), facts.metrics.end(), metric.key) > 0)
      text += spread_lines(report, metric);
  text += error_lines(report) + mark_lines(report);
  return text + std::string(kColumns, '=') + "\n" + notes(report);
}

std::string sweep_text(const std::vector<RunReport>& points, bool by_rate) {
  const bool goals = !points.empty() && !points.front().facts.goals.empty();
  std::string text = printed(
      "%12s %10s %12s %12s %12s %12s %s%7s\n", by_rate ? "req/s asked" : "concurrency", "req/s",
      "out tok/s", "p50 TTFT ms", "p99 TTFT ms", "p99 TPOT ms", goals ? "  good % " : "", "failed");
  for (const RunReport& point : points) {
    const Summary& s = point.summary;
    const std::string asked =
        by_rate ? rate_name(point.facts.request_rate) : std::to_string(point.facts.max_concurrency);
    const std::string good = goals ? printed("%8.1f ", s.good_share * 100) : "";
    text += printed("%12s %10.2f %12.1f %12.1f %12.1f %12.2f %s%7llu%s\n", asked.c_str(),
                    s.request_throughput, s.output_throughput, s.ttft.median,
                    percentile(s.ttft.sorted, 99), percentile(s.tpot.sorted, 99), good.c_str(),
                    static_cast<unsigned long long>(s.failed),
                    point.headroom.bottleneck() ? "  the client was the bottleneck" : "");
  }
  return text;
}

}  // namespace troupe::bench
