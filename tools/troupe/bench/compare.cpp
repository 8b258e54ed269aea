#include "tools/troupe/bench/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>

#include "tools/troupe/bench/printed.h"
#include "tools/troupe/bench/summary.h"
#include "tools/troupe/chat/terminal_text.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

/// Of what a file says, so much is printed of each word.
constexpr std::size_t kWordBytesMax = 100;
/// Lengths differ from here on: random ones never come to the same.
constexpr double kLengthsDiffer = 0.01;

struct Total {
  const char* key;
  const char* name;
  bool higher_is_better;
};
constexpr Total kTotals[] = {
    {"failed", "Failed requests", false},
    {"request_throughput", "Request throughput (req/s)", true},
    {"request_goodput", "Request goodput (req/s)", true},
    {"output_throughput", "Output token throughput (tok/s)", true},
    {"total_token_throughput", "Total token throughput (tok/s)", true},
};
constexpr const char* kNeeded[] = {"completed", "duration", "request_throughput",
                                   "output_throughput"};
constexpr const char* kSettings[] = {"backend",      "model_id",   "num_prompts",
                                     "request_rate", "burstiness", "max_concurrency",
                                     "dataset_name", "seed"};
/// Places of a mean and a median, before all percentiles.
constexpr double kMeanPlace = -2, kMedianPlace = -1;

std::optional<double> number_of(const json& result, const std::string& key) {
  const auto found = result.find(key);
  if (found == result.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// A setting as a word, or nothing if the file does not tell it.
std::optional<std::string> setting_of(const json& result, const std::string& key) {
  const auto found = result.find(key);
  if (found == result.end()) return std::nullopt;
  if (found->is_number()) return printed("%.15g", found->get<double>());
  if (found->is_string())
    return chat::terminal_line(found->get_ref<const std::string&>(), kWordBytesMax);
  if (found->is_null() && key == "max_concurrency") return "none";
  return std::nullopt;
}

/// "mean_ttft_ms", "median_ttft_ms" or "p99.9_ttft_ms" of that metric: where its row is, and how it
/// begins.
std::optional<std::pair<double, std::string>> latency_place(const std::string& key,
                                                            const std::string& metric) {
  const std::string end = "_" + metric + "_ms";
  if (!key.ends_with(end)) return std::nullopt;
  const std::string kind = key.substr(0, key.size() - end.size());
  if (kind == "mean") return std::pair{kMeanPlace, "Mean"};
  if (kind == "median") return std::pair{kMedianPlace, "Median"};
  double percent = 0;
  const char* last = kind.data() + kind.size();
  if (!kind.starts_with('p') || std::from_chars(kind.data() + 1, last, percent).ptr != last ||
      kind.size() < 2 || !(percent >= 0 && percent <= 100))
    return std::nullopt;
  return std::pair{percent, "P" + kind.substr(1)};
}

void add_figures(const json& result, ResultPoint& point) {
  int place = 0;
  for (const Total& total : kTotals) {
    if (const auto value = number_of(result, total.key))
      point.figures[{place, 0}] = {total.key, total.name, total.higher_is_better, *value};
    ++place;
  }
  for (const Metric& metric : kMetrics) {
    for (const auto& [key, value] : result.items()) {
      const auto row = latency_place(key, metric.key);
      // No answer takes no time: 0 stands for a metric without values.
      if (!row || !value.is_number() || value.get<double>() <= 0) continue;
      point.figures[{place, row->first}] = {key, row->second + " " + metric.name + " (ms)", false,
                                            value.get<double>()};
    }
    ++place;
  }
}

Result<ResultPoint> point_of(const json& result, const std::string& who) {
  if (!result.is_object()) return corrupt(who + " is no JSON object.");
  std::string missing;
  for (const char* key : kNeeded)
    if (!number_of(result, key))
      missing += (missing.empty() ? "'" : ", '") + std::string(key) + "'";
  if (!missing.empty()) return corrupt(who + " lacks " + missing + ".");
  ResultPoint point;
  for (const char* key : kSettings)
    if (const auto word = setting_of(result, key)) point.settings.emplace_back(key, *word);
  point.concurrency = setting_of(result, "max_concurrency").value_or("none");
  point.rate = setting_of(result, "request_rate").value_or("inf");
  const double completed = *number_of(result, "completed");
  for (const auto& [key, name] : {std::pair{"total_input_tokens", "input tokens a request"},
                                  {"total_output_tokens", "output tokens a request"}})
    if (const auto tokens = number_of(result, key); tokens && completed > 0)
      point.settings.emplace_back(name, printed("%.6g", *tokens / completed));
  add_figures(result, point);
  return point;
}

/// The values of a text in which each line is one; nothing if one is none.
json values_of_lines(std::string_view text) {
  json list = json::array();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    json value = json::parse(line, nullptr, false);
    if (value.is_discarded()) return value;
    list.push_back(std::move(value));
  }
  return list;
}

/// Whether it is of the lengths that come out, and so close that they were asked for alike.
bool alike(const std::string& name, const std::string& a, const std::string& b) {
  if (a == b) return true;
  if (!name.ends_with(" a request")) return false;
  const double first = std::strtod(a.c_str(), nullptr), second = std::strtod(b.c_str(), nullptr);
  return std::abs(first - second) <= kLengthsDiffer * std::max(first, second);
}

void add_settings(const ResultPoint& a, const ResultPoint& b, std::vector<Setting>& settings) {
  for (const auto& [name, value] : a.settings)
    for (const auto& [other_name, other] : b.settings) {
      const Setting setting{name, value, other};
      if (name == other_name && !alike(name, value, other) &&
          std::ranges::count(settings, setting) == 0)
        settings.push_back(setting);
    }
}

std::vector<ComparedFigure> figures_of(const ResultPoint& a, const ResultPoint& b) {
  std::map<std::pair<int, double>, ComparedFigure> rows;
  for (const auto& [points, side] : {std::pair{&a, &ComparedFigure::a}, {&b, &ComparedFigure::b}})
    for (const auto& [place, figure] : points->figures) {
      ComparedFigure& row = rows[place];
      row.key = figure.key;
      row.name = figure.name;
      row.higher_is_better = figure.higher_is_better;
      row.*side = figure.value;
    }
  std::vector<ComparedFigure> figures;
  for (auto& [place, row] : rows) figures.push_back(std::move(row));
  return figures;
}

/// By what the points of two files are told apart.
struct Key {
  bool concurrency = false, rate = false;

  std::string operator()(const ResultPoint& point) const {
    std::string label;
    if (concurrency) label = "concurrency " + point.concurrency;
    if (rate) label += (label.empty() ? "" : ", ") + point.rate + " req/s";
    return label;
  }
};

Key key_of(const NamedResults& a, const NamedResults& b) {
  Key key;
  for (const NamedResults* results : {&a, &b})
    for (const ResultPoint& point : results->points) {
      key.concurrency |= point.concurrency != results->points.front().concurrency;
      key.rate |= point.rate != results->points.front().rate;
    }
  return key;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string verdict(const ComparedFigure& figure) {
  const auto ratio = figure.ratio();
  if (!ratio) return "";
  if (std::abs(*ratio - 1) < 0.005) return "same";
  return std::string((*ratio > 1) == figure.higher_is_better ? "better" : "worse") + " (" +
         (figure.higher_is_better ? "higher" : "lower") + " is better)";
}

/// Requests are whole ones.
std::string cell(const std::optional<double>& value, bool whole = false) {
  return value ? printed("%.*f", whole ? 0 : 2, *value) : "-";
}

/// A number if it is one.
json value_of(const std::string& word) {
  if (word == "none") return nullptr;
  const json value = json::parse(word, nullptr, false);
  return value.is_number() ? value : json(word);
}

}  // namespace

Result<std::vector<ResultPoint>> parse_results(std::string_view text, const std::string& file) {
  const std::string who =
      "'" + chat::terminal_line(file, kWordBytesMax * 2) + "' is no result of a benchmark: ";
  json results = json::parse(text, nullptr, false);
  // As `vllm bench serve --append-result` writes them.
  if (results.is_discarded()) results = values_of_lines(text);
  if (results.is_discarded()) return corrupt(who + "it is no JSON.");
  const bool list = results.is_array();
  if (!list) results = json::array({std::move(results)});
  if (results.empty()) return corrupt(who + "it has no points.");
  std::vector<ResultPoint> points;
  for (const json& result : results) {
    auto point =
        point_of(result, who + (list ? "its point " + std::to_string(points.size() + 1) : "it"));
    if (!point.ok()) return point.error();
    points.push_back(std::move(*point));
  }
  return points;
}

std::optional<double> ComparedFigure::ratio() const {
  if (!a || !b || *a == 0) return std::nullopt;
  return *b / *a;
}

Result<Comparison> compare(const NamedResults& a, const NamedResults& b) {
  Comparison comparison{a.file, b.file, {}, {}, {}, {}};
  const Key key = key_of(a, b);
  // Repeated runs go together in their order.
  std::map<std::string, std::deque<const ResultPoint*>> others;
  for (const ResultPoint& point : b.points) others[key(point)].push_back(&point);
  for (const ResultPoint& point : a.points) {
    const std::string label = key(point);
    auto& left = others[label];
    if (left.empty()) {
      comparison.only_a.push_back(label);
      continue;
    }
    add_settings(point, *left.front(), comparison.settings);
    comparison.points.push_back(
        {label, point.concurrency, point.rate, figures_of(point, *left.front())});
    left.pop_front();
  }
  for (const ResultPoint& point : b.points)
    if (const auto& left = others[key(point)]; std::ranges::count(left, &point) > 0)
      comparison.only_b.push_back(key(point));
  if (comparison.points.empty())
    return invalid_argument("The files have no point in common: '" + a.file + "' has " +
                            joined(comparison.only_a, "; ") + " and '" + b.file + "' has " +
                            joined(comparison.only_b, "; ") + ".");
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  const auto name = [](const std::string& file) { return chat::terminal_line(file, 400); };
  std::string text = "A: " + name(comparison.a) + "\nB: " + name(comparison.b) + "\n";
  std::vector<std::string> settings;
  for (const Setting& setting : comparison.settings)
    settings.push_back(setting.name + " (" + setting.a + " in A, " + setting.b + " in B)");
  if (!settings.empty()) text += "These settings differ: " + joined(settings, ", ") + ".\n";
  for (const ComparedPoint& point : comparison.points) {
    text += "\n" + printed("%-34s %12s %12s %8s\n", point.label.c_str(), "A", "B", "B/A");
    for (const ComparedFigure& figure : point.figures) {
      const bool whole = figure.key == "failed";
      std::string row = printed("%-34s %12s %12s %8s  %s", figure.name.c_str(),
                                cell(figure.a, whole).c_str(), cell(figure.b, whole).c_str(),
                                cell(figure.ratio()).c_str(), verdict(figure).c_str());
      while (row.ends_with(' ')) row.pop_back();
      text += row + "\n";
    }
  }
  for (const auto& [labels, side] : {std::pair{&comparison.only_a, "A"}, {&comparison.only_b, "B"}})
    if (!labels->empty())
      text += std::string("\nOnly in ") + side + ": " + joined(*labels, "; ") + ".\n";
  return text;
}

nlohmann::ordered_json comparison_json(const Comparison& comparison) {
  using Json = nlohmann::ordered_json;
  const auto maybe = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json out = {{"a", comparison.a}, {"b", comparison.b}};
  Json& settings = out["settings_that_differ"] = Json::array();
  for (const Setting& setting : comparison.settings)
    settings.push_back(
        {{"name", setting.name}, {"a", value_of(setting.a)}, {"b", value_of(setting.b)}});
  Json& points = out["points"] = Json::array();
  for (const ComparedPoint& point : comparison.points) {
    Json metrics = Json::object();
    for (const ComparedFigure& figure : point.figures)
      metrics[figure.key] = {{"a", maybe(figure.a)},
                             {"b", maybe(figure.b)},
                             {"ratio", maybe(figure.ratio())},
                             {"better", figure.higher_is_better ? "higher" : "lower"}};
    points.push_back({{"max_concurrency", value_of(point.concurrency)},
                      {"request_rate", value_of(point.rate)},
                      {"metrics", std::move(metrics)}});
  }
  out["only_in_a"] = comparison.only_a;
  out["only_in_b"] = comparison.only_b;
  return out;
}

}  // namespace troupe::bench
