#include "tools/troupe/bench/serve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tools/troupe/bench/cluster.h"
#include "tools/troupe/bench/limits.h"
#include "tools/troupe/bench/worker_killer.h"
#include "tools/troupe/chat/terminal_text.h"
#include "tools/troupe/local_time.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

/// Warming up must not fill the caches with the prompts to come.
constexpr std::uint64_t kWarmUpNumber = 1'000'000'007;
/// Runs that look closer at where the goals are missed, and the step from which on that is enough.
constexpr int kCloserPoints = 3;
constexpr double kCloseEnough = 1.15;

std::string local_date() {
  const std::time_t now_s = std::time(nullptr);
  std::tm local{};
  char text[32] = "";
  if (localtime_r(&now_s, &local) != nullptr)
    std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

}  // namespace

Serve::Serve(HttpClient& client, ServePlan plan,
             std::function<void(const ServeProgress&)> on_progress)
    : client_(client), plan_(std::move(plan)), on_progress_(std::move(on_progress)) {}

Status Serve::prepare() {
  for (auto step : {&Serve::learn_model, &Serve::learn_vocabulary})
    if (Status learned = (this->*step)(); !learned.ok()) return learned;
  set_fields();
  troupe_ = parse_status(ask(client_, status_request())).ok();
  if (plan_.kill_every && !troupe_)
    return unavailable("--kill needs a Troupe cluster; " + plan_.facts.base_url +
                       "/cluster/status does not answer as one does.");
  return warm_up();
}

Status Serve::learn_model() {
  if (!plan_.facts.model.empty()) return {};
  const auto answer = ask(client_, {"GET", "/v1/models", "", kAskDeadline});
  const auto wrong = [&](ErrorCode code, const std::string& why,
                         const char* remedy = "name it with --model") {
    return Error{code, plan_.facts.base_url + "/v1/models does not say which model to ask: " + why +
                           "; " + remedy + "."};
  };
  if (!answer.ok())
    return wrong(answer.error().code, answer.error().message,
                 "say where the server is with --base-url");
  const int status = answer->head.status;
  if (status == 401 || status == 403)
    return wrong(ErrorCode::kRefused, "HTTP " + std::to_string(status),
                 "give a key that the server takes with --api-key");
  if (status >= 300 && status < 400)
    return wrong(
        ErrorCode::kRefused,
        "it points to '" + chat::terminal_line(answer->head.location, kErrorBytesMax) + "'",
        "give that as --base-url if you mean it");
  if (status != 200) return wrong(ErrorCode::kUnavailable, "HTTP " + std::to_string(status));
  const json models = json::parse(answer->body, nullptr, false);
  const json::json_pointer first("/data/0/id");
  if (!models.is_object() || !models.contains(first) || !models[first].is_string())
    return wrong(ErrorCode::kCorrupt, "the answer has no data[0].id");
  const auto& model = models[first].get_ref<const std::string&>();
  // It becomes part of a file's name and of what is printed.
  if (model.empty() || chat::terminal_line(model, kModelBytesMax) != model)
    return wrong(ErrorCode::kCorrupt, "data[0].id is no name that could be printed");
  plan_.facts.model = model;
  return {};
}

/// Ids that the server makes of words are ordinary ones, whatever its vocabulary is.
Status Serve::learn_vocabulary() {
  using Format = ServePlan::Format;
  if (plan_.prompts.kind == PromptOptions::Kind::kShareGpt) {
    if (plan_.prompts.sharegpt_output_len == 0)
      plan_.facts.lengths =
          "Answers were asked for as long as the file's, with a token for 4 bytes.";
    return {};
  }
  if (plan_.vocab_size > 0 && plan_.format != Format::kWords) {
    vocabulary_.ids.resize(plan_.vocab_size);
    std::iota(vocabulary_.ids.begin(), vocabulary_.ids.end(), 0);
    return {};
  }
  const json question = {
      {"model", plan_.facts.model}, {"prompt", word_list()}, {"add_special_tokens", false}};
  const auto answer = ask(client_, {"POST", "/tokenize", question.dump(), kAskDeadline});
  std::vector<std::int32_t> ids;
  if (answer.ok() && answer->head.status == 200) {
    const json told = json::parse(answer->body, nullptr, false);
    if (told.is_object() && told.contains("tokens") && told["tokens"].is_array())
      for (const json& id : told["tokens"])
        if (id.is_number_unsigned() && id.get<std::uint64_t>() <= 0x7fffffff)
          ids.push_back(id.get<std::int32_t>());
  }
  if (!ids.empty()) {
    vocabulary_.tokens_per_word =
        static_cast<double>(ids.size()) / static_cast<double>(word_count());
    vocabulary_.counted = true;
  }
  if (plan_.format != Format::kWords) {
    const std::set<std::int32_t> different(ids.begin(), ids.end());
    vocabulary_.ids.assign(different.begin(), different.end());
    if (ids.empty() && plan_.format == Format::kIds)
      return unavailable("The server has no /tokenize to learn ids from; give --vocab-size N.");
  }
  if (vocabulary_.ids.empty())
    plan_.facts.lengths = vocabulary_.counted
                              ? "Prompts are words; their lengths in tokens are about right."
                              : "The server does not say how it counts (/tokenize): lengths of "
                                "prompts were asked for in words.";
  return {};
}

void Serve::set_fields() {
  json fields = {{"model", plan_.facts.model},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
  fields.update(json::parse(plan_.sampling));
  fields.merge_patch(json::parse(plan_.extra_body));
  const std::string text = fields.dump(-1, ' ', false, json::error_handler_t::replace);
  plan_.load.fields = text.substr(1, text.size() - 2);
}

Status Serve::warm_up() {
  if (client_.stopped()) return cancelled("The run was ended.");
  auto prompts = make_prompts(plan_.prompts, vocabulary_);
  if (!prompts.ok()) return prompts.error();
  if (plan_.num_warmups == 0) return {};
  LoadOptions load = plan_.load;
  load.requests = plan_.num_warmups;
  load.rate = std::numeric_limits<double>::infinity();
  (void)run_once(load, kWarmUpNumber);
  return client_.stopped() ? Status(cancelled("The run was ended.")) : Status();
}

RunReport Serve::run_once(const LoadOptions& load_options, std::uint64_t number) {
  RunReport report;
  report.facts = plan_.facts;
  report.facts.date = local_date();
  report.facts.request_rate = load_options.rate;
  report.facts.max_concurrency = load_options.max_concurrency;
  report.facts.num_prompts = load_options.requests;
  PromptOptions prompt_options = plan_.prompts;
  // Prompts of its own: those of the point before are in the server's cache.
  prompt_options.seed += number;
  const auto prompts = make_prompts(prompt_options, vocabulary_);
  if (!prompts.ok()) return report;  // a file that was there a moment ago
  Load load(client_, load_options, **prompts);
  HeadroomWatch headroom(client_);
  std::optional<WorkerKiller> killer;
  if (plan_.kill_every && number != kWarmUpNumber)
    killer.emplace(client_, *plan_.kill_every, load_options.seed);
  const auto progress = [&](bool last) {
    if (number != kWarmUpNumber)
      on_progress_({load.ended(), load.failed(), load_options.requests, last});
  };
  load.on_progress = [&] { progress(false); };
  load.on_over = [&] {
    report.headroom = headroom.so_far();
    if (killer) killer->stop();
    client_.forget_timers();
  };
  const double begun_unix_s = cli::unix_now_s();
  load.start();
  if (killer) killer->start();
  client_.run();
  progress(true);
  report.interrupted = load.ended() < load_options.requests || client_.stopped();
  if (report.interrupted) report.headroom = headroom.so_far();
  report.summary = summarize(load.records(), load.duration_s(), report.facts.goals);
  report.records = load.records();
  report.marks = cluster_events(begun_unix_s);
  if (killer) {
    report.killed = killer->killed();
    report.marks.insert(report.marks.end(), killer->marks().begin(), killer->marks().end());
  }
  std::stable_sort(report.marks.begin(), report.marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return report;
}

std::vector<Mark> Serve::cluster_events(double begun_unix_s) {
  if (!troupe_ || client_.stopped()) return {};
  const auto status = parse_status(ask(client_, status_request()));
  return status.ok() ? events_since(*status, begun_unix_s) : std::vector<Mark>();
}

RunReport Serve::run() { return run_once(plan_.load, 0); }

bool Serve::good(const RunReport& report) const {
  return !report.interrupted && report.summary.completed > 0 &&
         report.summary.good_share >= plan_.sweep_good_share;
}

std::vector<RunReport> Serve::series(const std::function<void(const RunReport&)>& on_point) {
  std::vector<RunReport> points;
  std::pair<bool, double> best{false, -1};
  for (const std::uint64_t streams : plan_.series) {
    if (client_.stopped()) break;
    LoadOptions load = plan_.load;
    load.max_concurrency = streams;
    load.requests = requests_of_streams(streams, load.turns, plan_.num_prompts);
    RunReport report = run_once(load, points.size());
    on_point(report);
    const std::pair rank{good(report), report.summary.output_throughput};
    if (rank > best) {
      best = rank;
      for (RunReport& point : points) point.records = {};
    } else {
      report.records = {};
    }
    points.push_back(std::move(report));
  }
  return points;
}

std::vector<RunReport> Serve::sweep(const std::function<void(const RunReport&)>& on_point) {
  const bool by_rate = plan_.sweep == ServePlan::Sweep::kRate;
  std::vector<RunReport> points;
  std::optional<double> best, missed;
  double value = plan_.sweep_from;
  const int points_max = std::min(plan_.sweep_points + kCloserPoints, kSweepPointsMax);
  // More streams than there are requests would be the same load again.
  const double most = by_rate ? std::numeric_limits<double>::infinity()
                              : static_cast<double>(plan_.load.streams_max());
  int closer = 0;
  for (int number = 0; number < points_max && !client_.stopped(); ++number) {
    LoadOptions load = plan_.load;
    if (by_rate)
      load.rate = value;
    else
      load.max_concurrency = static_cast<std::uint64_t>(value);
    RunReport report = run_once(load, static_cast<std::uint64_t>(number));
    on_point(report);
    const bool kept = good(report);
    if (kept && (!best || value > *best)) best = value;
    if (!kept && (!missed || value < *missed)) missed = value;
    // Each token of each request is remembered; of one point that is enough.
    if (kept)
      for (RunReport& point : points) point.records = {};
    else if (!points.empty())
      report.records = {};
    points.push_back(std::move(report));
    if (!missed) {
      if (number + 1 >= plan_.sweep_points || value >= most) break;
      value = std::min(value * 2, most);
      continue;
    }
    if (!best || *missed / *best < kCloseEnough || closer++ >= kCloserPoints) break;
    value = by_rate ? std::sqrt(*best * *missed) : std::floor((*best + *missed) / 2);
    if (value <= *best || value >= *missed) break;
  }
  std::stable_sort(points.begin(), points.end(), [&](const RunReport& a, const RunReport& b) {
    return by_rate ? a.facts.request_rate < b.facts.request_rate
                   : a.facts.max_concurrency < b.facts.max_concurrency;
  });
  return points;
}

std::string result_path(const ServePlan& plan, const RunFacts& facts, const std::string& point) {
  std::string name = plan.result_filename;
  if (name.empty()) {
    const std::string bound =
        facts.max_concurrency > 0 ? "-concurrency" + std::to_string(facts.max_concurrency) : "";
    std::string model = facts.model.substr(facts.model.rfind('/') + 1);
    name = facts.backend + "-" + rate_name(facts.request_rate) + "qps" + bound + "-" + model + "-" +
           facts.date + ".json";
  } else if (!point.empty()) {
    const std::size_t dot = name.ends_with(".json") ? name.size() - 5 : name.size();
    name.insert(dot, "-" + point);
  }
  return plan.result_dir.empty() ? name : plan.result_dir + "/" + name;
}

}  // namespace troupe::bench
