#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/troupe/bench/serve_options.h"

namespace troupe::bench {

/// How far a run is.
struct ServeProgress {
  std::uint64_t ended = 0, failed = 0, total = 0;
  bool last = false;
};

/// Measures a server as the plan says: one run, or the points of a sweep or a series.
class Serve {
 public:
  /// `on_progress` is called often.
  Serve(HttpClient& client, ServePlan plan, std::function<void(const ServeProgress&)> on_progress);

  /// Learns the model's name and how to ask, and warms up. kUnavailable, ...: the server does not
  /// answer what it must; kCancelled: the client was stopped.
  Status prepare();
  /// Once. Whatever the server does, it ends with a report.
  RunReport run();
  /// From one point to the next until the goals are missed, then closer; `on_point` after each.
  /// The result is in ascending order; only that of the best point still has its records.
  std::vector<RunReport> sweep(const std::function<void(const RunReport&)>& on_point);
  /// One after the other. The best point, which still has its records, is the one of most output
  /// tokens a second among those that meet the goals, or else among all.
  std::vector<RunReport> series(const std::function<void(const RunReport&)>& on_point);

  /// Whether enough requests of the report met their goals, or completed where there are none.
  bool good(const RunReport& report) const;

 private:
  Status learn_model();
  Status learn_vocabulary();
  Status warm_up();
  void set_fields();
  /// `load` and `prompts` for the n-th run of this plan.
  RunReport run_once(const LoadOptions& load, std::uint64_t number);
  std::vector<Mark> cluster_events(double begun_unix_s);

  HttpClient& client_;
  ServePlan plan_;
  const std::function<void(const ServeProgress&)> on_progress_;
  Vocabulary vocabulary_;
  bool troupe_ = false;  ///< the server tells what happens to its cluster
};

/// Where the result file of a report goes, as `vllm bench serve` names it; `point`: "" or a suffix.
std::string result_path(const ServePlan& plan, const RunFacts& facts, const std::string& point);

}  // namespace troupe::bench
