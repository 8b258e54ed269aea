#include <algorithm>
#include <cmath>

#include "tools/troupe/bench/report.h"
#include "tools/troupe/bench/svg_plot.h"

namespace troupe::bench {
namespace {

// Okabe and Ito's colours, which people with any kind of colour blindness tell apart.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --faint: #d5d5d5; --soft: #666;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #8a6d00; --c5: #2b8cc4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181b; --faint: #3a3d42;
  --soft: #a0a4aa; --c0: #56b4e9; --c1: #e69f00; --c2: #2fd1a0; --c3: #e59cc6; --c4: #f0e442;
  --c5: #9ad0f5; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;
  max-width: 860px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .2em .9em .2em 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr { border-bottom: 1px solid var(--faint); }
th { color: var(--soft); font-weight: 600; } .wide { overflow-x: auto; }
figure { margin: 1.5em 0; } figcaption { font-weight: 600; } svg { max-width: 100%; }
.label { fill: var(--soft); font-size: 11px; } .grid { stroke: var(--faint); }
.mark line { stroke: var(--soft); stroke-dasharray: 2 3; } .mark path { fill: var(--soft); }
.mark.strong line { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: none; }
.mark.strong path { fill: var(--ink); }
.legend span { margin-right: 1.5em; } .legend svg { vertical-align: middle; margin-right: .4em; }
.warn { border-left: 4px solid var(--c1); padding-left: .8em; font-weight: 600; }
)";

/// A plot's points: more would be drawn over one another.
constexpr std::size_t kPointsMax = 600;
constexpr std::size_t kBins = 60;
/// Marks that are listed below the time line.
constexpr std::size_t kMarksListed = 500;

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string row(const std::vector<std::string>& cells, const char* kind = "td") {
  std::string out = "<tr>";
  for (const std::string& cell : cells)
    out += "<" + std::string(kind) + ">" + escaped(cell) + "</" + kind + ">";
  return out + "</tr>\n";
}

std::string facts_table(const RunReport& report) {
  const RunFacts& f = report.facts;
  const Summary& s = report.summary;
  std::string out = "<table>\n";
  out += row({"server", f.base_url}) + row({"model", f.model}) +
         row({"backend, dataset", f.backend + ", " + f.dataset}) +
         row({"rate asked, burstiness",
              rate_name(f.request_rate) + " req/s, " + rate_name(f.burstiness)}) +
         row({"concurrency bound",
              f.max_concurrency > 0 ? std::to_string(f.max_concurrency) : "none"}) +
         row({"seed", std::to_string(f.seed)}) + row({"date", f.date}) +
         row({"completed, failed, unfinished", std::to_string(s.completed) + ", " +
                                                   std::to_string(s.failed) + ", " +
                                                   std::to_string(s.unfinished)}) +
         row({"duration", number(s.duration_s, 2) + " s"}) +
         row({"requests", number(s.request_throughput, 2) + " a second"}) +
         row({"output tokens", number(s.output_throughput, 1) + " a second"});
  if (s.request_goodput)
    out += row({"goodput", number(*s.request_goodput, 2) + " requests a second, " +
                               number(s.good_share * 100, 1) + " %"});
  if (report.killed) out += row({"workers killed", std::to_string(*report.killed)});
  out += row({"longest gap between tokens", number(s.longest_gap_s * 1000, 1) + " ms"});
  for (const auto& [key, value] : f.metadata) out += row({key, value});
  return out + "</table>\n";
}

std::string latency_table(const RunReport& report) {
  std::vector<std::string> head = {"milliseconds", "mean", "median", "std"};
  for (const double p : report.facts.percentiles) head.push_back("p" + percent_name(p));
  std::string out = "<div class=\"wide\"><table>\n" + row(head, "th");
  for (const Metric& metric : kMetrics) {
    const Spread& spread = report.summary.*metric.spread;
    std::vector<std::string> cells = {metric.headline, number(spread.mean, 2),
                                      number(spread.median, 2), number(spread.std, 2)};
    for (const double p : report.facts.percentiles)
      cells.push_back(number(percentile(spread.sorted, p), 2));
    out += row(cells);
  }
  return out + "</table></div>\n";
}

/// How often each latency was, up to p99.5 (the slowest would squeeze all others), and the share
/// that was not slower.
Plot distribution(const Metric& metric, const Spread& spread) {
  Plot plot{.title = metric.headline, .x_label = "ms", .y_label = "count", .right_label = "share"};
  const double most = percentile(spread.sorted, 99.5);
  const double bin = most > 0 ? most / kBins : 1;
  Series counts{"count", {}, Series::Form::kBars, false};
  for (std::size_t i = 0; i <= kBins; ++i)
    counts.points.emplace_back(bin * static_cast<double>(i), 0);
  for (const double value : spread.sorted)
    if (value <= most)
      counts.points[std::min(kBins - 1, static_cast<std::size_t>(value / bin))].second += 1;
  Series share{"share not slower", {}, Series::Form::kLine, true};
  for (double p = 0; p <= 99.5; p += 0.5)
    share.points.emplace_back(percentile(spread.sorted, p), p / 100);
  plot.series = {std::move(counts), std::move(share)};
  return plot;
}

Plot time_line(const RunReport& report) {
  Plot plot{.title = "Time line",
            .x_label = "seconds",
            .y_label = "output tokens a second",
            .right_label = "requests"};
  const auto seconds = seconds_of(report.records, report.summary.duration_s);
  const std::size_t group = seconds.size() / kPointsMax + 1;
  Series tokens{"output tokens a second", {}, Series::Form::kLine, false};
  Series running{"requests under way", {}, Series::Form::kLine, true};
  Series failed{"requests that failed", {}, Series::Form::kLine, true};
  for (std::size_t first = 0; first < seconds.size(); first += group) {
    const std::size_t last = std::min(first + group, seconds.size());
    double sum = 0, most = 0, lost = 0;
    for (std::size_t i = first; i < last; ++i) {
      sum += seconds[i].output_tokens;
      most = std::max(most, static_cast<double>(seconds[i].running));
      lost += static_cast<double>(seconds[i].failed);
    }
    const auto at = static_cast<double>(first);
    tokens.points.emplace_back(at, sum / static_cast<double>(last - first));
    running.points.emplace_back(at, most);
    failed.points.emplace_back(at, lost);
  }
  plot.series = {std::move(tokens), std::move(running), std::move(failed)};
  for (const Mark& mark : report.marks)
    plot.marks.push_back({mark.at_s, mark.kind, mark.text, mark.kind == "kill"});
  return plot;
}

std::string mark_table(const RunReport& report) {
  if (report.marks.empty()) return {};
  std::string out = "<table>\n" + row({"event", "second"}, "th");
  const std::size_t listed = std::min(report.marks.size(), kMarksListed);
  for (std::size_t i = 0; i < listed; ++i) {
    const Mark& mark = report.marks[i];
    out += row({mark.kind + ": " + mark.text, number(mark.at_s, 2)});
  }
  return out + "</table>\n";
}

/// Throughput against latency, a point for each run.
Plot against(const std::vector<RunReport>& points, const Metric& metric) {
  Plot plot{.title = std::string("Output tokens a second against ") + metric.name,
            .x_label = "output tokens a second",
            .y_label = std::string(metric.name) + " ms"};
  for (const double p : {50.0, 99.0}) {
    Series series{"p" + percent_name(p), {}, Series::Form::kLineAndDots, false};
    for (const RunReport& point : points)
      series.points.emplace_back(point.summary.output_throughput,
                                 percentile((point.summary.*metric.spread).sorted, p));
    plot.series.push_back(std::move(series));
  }
  return plot;
}

/// Throughput over what the points differ in: the bound of concurrency, or else the rate.
Plot over_load(const std::vector<RunReport>& points) {
  const std::uint64_t first = points.front().facts.max_concurrency;
  const bool by_rate = std::all_of(points.begin(), points.end(), [&](const RunReport& point) {
    return point.facts.max_concurrency == first;
  });
  Plot plot{
      .title = by_rate ? "Throughput over requests a second asked" : "Throughput over concurrency",
      .x_label = by_rate ? "requests a second asked" : "requests under way at most",
      .y_label = "output tokens a second",
      .right_label = "of one answer",
      .x_doubles = true};
  Series all{"output tokens a second, all together", {}, Series::Form::kLineAndDots, false};
  Series one{"of one answer (median)", {}, Series::Form::kLineAndDots, true};
  for (const RunReport& point : points) {
    const RunFacts& f = point.facts;
    const double x = by_rate ? f.request_rate : static_cast<double>(f.max_concurrency);
    const double token_ms = point.summary.tpot.median;
    all.points.emplace_back(x, point.summary.output_throughput);
    if (token_ms > 0) one.points.emplace_back(x, 1000 / token_ms);
  }
  plot.series = {std::move(all), std::move(one)};
  return plot;
}

std::string points_section(const std::vector<RunReport>& points) {
  std::vector<std::string> head = {"req/s asked", "concurrency", "req/s",       "out tok/s",
                                   "p50 TTFT ms", "p99 TTFT ms", "p99 TPOT ms", "failed"};
  const bool goals = !points.front().facts.goals.empty();
  if (goals) head.push_back("good %");
  std::string out = "<h2>All points</h2>\n<div class=\"wide\"><table>\n" + row(head, "th");
  for (const RunReport& point : points) {
    const Summary& s = point.summary;
    const std::uint64_t bound = point.facts.max_concurrency;
    std::vector<std::string> cells = {rate_name(point.facts.request_rate),
                                      bound > 0 ? std::to_string(bound) : "none",
                                      number(s.request_throughput, 2),
                                      number(s.output_throughput, 1),
                                      number(s.ttft.median, 1),
                                      number(percentile(s.ttft.sorted, 99), 1),
                                      number(percentile(s.tpot.sorted, 99), 2),
                                      std::to_string(s.failed)};
    if (goals) cells.push_back(number(s.good_share * 100, 1));
    out += row(cells);
  }
  out += "</table></div>\n" + svg(over_load(points));
  for (const Metric& metric : kMetrics) out += svg(against(points, metric));
  return out;
}

std::string run_section(const RunReport& report) {
  const std::string room = escaped(report.headroom.text());
  std::string out = "<p" + std::string(report.headroom.bottleneck() ? " class=\"warn\"" : "") +
                    ">" + room + "</p>\n";
  if (report.interrupted) out += "<p class=\"warn\">The run was ended early.</p>\n";
  if (report.summary.at_once > 0)
    out += "<p class=\"warn\">" + escaped(at_once_note(report.summary)) + "</p>\n";
  out += facts_table(report) + "<h2>Latencies</h2>\n" + latency_table(report);
  out += svg(time_line(report)) + mark_table(report) + "<h2>Distributions</h2>\n";
  for (const Metric& metric : kMetrics)
    out += svg(distribution(metric, report.summary.*metric.spread));
  return out;
}

}  // namespace

std::string report_html(const std::vector<RunReport>& points, std::size_t shown) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<title>Serving benchmark</title>\n<style>" +
      std::string(kStyle) + "</style></head>\n<body>\n<h1>Serving benchmark</h1>\n";
  if (points.size() > 1) out += points_section(points) + "<h2>The best point</h2>\n";
  if (shown < points.size()) out += run_section(points[shown]);
  return out + "</body></html>\n";
}

}  // namespace troupe::bench
