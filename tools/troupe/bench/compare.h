#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/result.h"

namespace troupe::bench {

/// A figure of a result, and which way is better.
struct Figure {
  std::string key, name;
  bool higher_is_better = false;
  double value = 0;
};

/// One run, as its result file tells it.
struct ResultPoint {
  std::string concurrency = "none", rate = "inf";  ///< as they were asked for
  std::vector<std::pair<std::string, std::string>> settings;
  /// By their places in a table: which figure, and which percentile of it.
  std::map<std::pair<int, double>, Figure> figures;
};

/// Reads the JSON of `troupe bench serve` or `vllm bench serve`: a result, a list of them or one a
/// line. kCorrupt names the file and what it lacks.
Result<std::vector<ResultPoint>> parse_results(std::string_view text, const std::string& file);

struct ComparedFigure {
  std::string key, name;
  bool higher_is_better = false;
  std::optional<double> a, b;  ///< a result may lack it
  std::optional<double> ratio() const;
};

struct ComparedPoint {
  std::string label;  ///< "concurrency 8"; "" where there is one
  std::string concurrency, rate;
  std::vector<ComparedFigure> figures;
};

struct Setting {
  std::string name, a, b;
  bool operator==(const Setting&) const = default;
};

struct Comparison {
  std::string a, b;                         ///< the files
  std::vector<Setting> settings;            ///< that differ
  std::vector<ComparedPoint> points;        ///< that both have
  std::vector<std::string> only_a, only_b;  ///< labels of the others
};

struct NamedResults {
  std::string file;
  std::vector<ResultPoint> points;
};

/// Two results are compared whatever they are of. Of lists, points that were asked for the same
/// concurrency and rate go together; kInvalidArgument: there are none.
Result<Comparison> compare(const NamedResults& a, const NamedResults& b);

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

}  // namespace troupe::bench
