#include "tools/troupe/bench/serve_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "tools/troupe/bench/limits.h"
#include "tools/troupe/bench/worker_killer.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

Result<double> number(std::string_view text, const std::string& flag) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value))
    return invalid_argument(flag + ": '" + std::string(text) + "' is no number.");
  return value;
}

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> words;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    if (comma > from) words.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return words;
}

std::vector<std::string> all_parts(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words)
    for (std::string& part : parts(word)) all.push_back(std::move(part));
  return all;
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(value) : std::nullopt;
}

Result<std::vector<std::pair<std::string, std::string>>> pairs(
    const std::vector<std::string>& words, const std::string& flag) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == word.npos || equals == 0)
      return invalid_argument(flag + " must be KEY=VALUE, not '" + word + "'.");
    if (word.find_first_of("\r\n") != word.npos)
      return invalid_argument(flag + ": '" + word.substr(0, equals) + "' has more than one line.");
    found.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return found;
}

Result<Goals> parse_goals(const std::vector<std::string>& words) {
  Goals goals;
  for (const std::string& word : all_parts(words)) {
    const std::size_t colon = std::min(word.find(':'), word.size());
    const std::string name = word.substr(0, colon);
    if (name != "ttft" && name != "tpot" && name != "e2el")
      return invalid_argument("--goodput takes ttft:MS, tpot:MS and e2el:MS, not '" + word + "'.");
    const auto bound = number(std::string_view(word).substr(std::min(colon + 1, word.size())),
                              "--goodput " + name);
    if (!bound.ok()) return bound.error();
    if (*bound < 0) return invalid_argument("--goodput " + name + " must not be negative.");
    goals.emplace_back(name, *bound);
  }
  return goals;
}

Status check_ranges(const ServeOptions& o) {
  const auto wrong = [](const std::string& text) { return invalid_argument(text); };
  const std::uint64_t prompts = o.num_prompts.value_or(kPromptsDefault);
  if (prompts < 1 || prompts > kPromptsMax || o.num_warmups > kPromptsMax)
    return wrong("--num-prompts must be 1 to " + std::to_string(kPromptsMax) + ".");
  if (!(o.burstiness > 0)) return wrong("--burstiness must be above 0.");
  if (!(o.timeout_s > 0) || o.timeout_s > 1e6) return wrong("--timeout must be 0 to 1000000 s.");
  if (o.max_retries < 0 || o.max_retries > 100) return wrong("--max-retries must be 0 to 100.");
  const PromptOptions& p = o.prompts;
  for (const std::uint64_t length : {p.input_len, p.output_len, p.repeated_len, p.suffix_len,
                                     p.repeated_output_len, p.sharegpt_output_len, p.prefix_len})
    if (length > kPromptTokensMax)
      return wrong("A length is above " + std::to_string(kPromptTokensMax) + " tokens.");
  if (p.input_len < 1 || p.output_len < 1 || p.repeated_output_len < 1)
    return wrong("--random-input-len and the output lengths must be at least 1.");
  if (!(p.range_ratio >= 0 && p.range_ratio < 1))
    return wrong("--random-range-ratio must be in [0, 1).");
  if (p.prefixes < 1 || p.prefixes > 100'000)
    return wrong("--prefix-repetition-num-prefixes must be 1 to 100000.");
  if (p.turns < 1 || p.turns > 1000) return wrong("--session-turns must be 1 to 1000.");
  if (!(o.session_think_s >= 0) || o.session_think_s > 3600)
    return wrong("--session-think-time must be 0 to 3600 s.");
  if (o.vocab_size > std::numeric_limits<std::int32_t>::max())
    return wrong("--vocab-size is no vocabulary's.");
  if (!(o.sweep_from > 0)) return wrong("--sweep-from must be above 0.");
  if (o.sweep_points < 1 || o.sweep_points > kSweepPointsMax)
    return wrong("--sweep-points must be 1 to " + std::to_string(kSweepPointsMax) + ".");
  if (!(o.sweep_good_share > 0 && o.sweep_good_share <= 1))
    return wrong("--sweep-good-share must be in (0, 1].");
  return {};
}

Status resolve_dataset(const ServeOptions& o, ServePlan& plan) {
  using Kind = PromptOptions::Kind;
  plan.prompts = o.prompts;
  plan.prompts.seed = o.seed;
  const std::vector<Kind> kinds = {Kind::kRandom, Kind::kPrefixRepetition, Kind::kShareGpt,
                                   Kind::kSessions};
  if (Status set = set_dataset(o.dataset, kinds, plan.prompts); !set.ok()) return set;
  const bool file = plan.prompts.kind == Kind::kShareGpt;
  if (o.prompt_format != "auto" && o.prompt_format != "ids" && o.prompt_format != "words")
    return invalid_argument("--prompt-format must be auto, ids or words, not '" + o.prompt_format +
                            "'.");
  using Format = ServePlan::Format;
  plan.format = o.prompt_format == "ids"     ? Format::kIds
                : o.prompt_format == "words" ? Format::kWords
                                             : Format::kAuto;
  const bool words_only = plan.chat || file || plan.prompts.kind == Kind::kSessions;
  if (words_only && plan.format == Format::kIds)
    return invalid_argument(
        "--prompt-format ids goes with --backend openai and --dataset random or prefix.");
  if (words_only) plan.format = Format::kWords;
  plan.ask_vocabulary = !file;
  plan.vocab_size = o.vocab_size;
  if (plan.prompts.kind == Kind::kSessions) {
    plan.load.turns = o.prompts.turns;
    plan.load.think_s = o.session_think_s;
  }
  return {};
}

Status resolve_fields(const ServeOptions& o, ServePlan& plan) {
  json sampling = json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) sampling[name] = *value;
  };
  add("temperature", o.temperature);
  add("top_p", o.top_p);
  add("top_k", o.top_k);
  add("min_p", o.min_p);
  add("repetition_penalty", o.repetition_penalty);
  add("presence_penalty", o.presence_penalty);
  add("frequency_penalty", o.frequency_penalty);
  // As vLLM: random prompts have no natural end.
  if (o.ignore_eos || plan.prompts.kind == PromptOptions::Kind::kRandom)
    sampling["ignore_eos"] = true;
  plan.sampling = sampling.dump();
  if (o.extra_body.empty()) return {};
  const json extra = json::parse(o.extra_body, nullptr, false);
  if (!extra.is_object()) return invalid_argument("--extra-body must be a JSON object.");
  for (const char* name :
       {"prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "model"})
    if (extra.contains(name))
      return invalid_argument(std::string("--extra-body may not set '") + name +
                              "', which other flags say.");
  plan.extra_body = extra.dump();
  return {};
}

Status resolve_facts(const ServeOptions& o, ServePlan& plan) {
  RunFacts& f = plan.facts;
  f.backend = o.backend;
  f.model = o.model;
  f.burstiness = o.burstiness;
  f.seed = o.seed;
  f.dataset = dataset_name(plan.prompts.kind);
  f.metrics = parts(o.percentile_metrics);
  for (const std::string& name : f.metrics)
    if (std::none_of(std::begin(kMetrics), std::end(kMetrics),
                     [&](const Metric& metric) { return name == metric.key; }))
      return invalid_argument("--percentile-metrics takes ttft, tpot, itl and e2el, not '" + name +
                              "'.");
  f.percentiles.clear();
  for (const std::string& word : parts(o.metric_percentiles)) {
    const auto percent = number(word, "--metric-percentiles");
    if (!percent.ok()) return percent.error();
    if (*percent < 0 || *percent > 100)
      return invalid_argument("--metric-percentiles must be 0 to 100.");
    f.percentiles.push_back(*percent);
  }
  auto goals = parse_goals(o.goodput);
  if (!goals.ok()) return goals.error();
  f.goals = std::move(*goals);
  auto metadata = pairs(o.metadata, "--metadata");
  if (!metadata.ok()) return metadata.error();
  f.metadata = std::move(*metadata);
  return {};
}

/// After the data set, which says how many turns a conversation has.
Status resolve_load(const ServeOptions& o, ServePlan& plan) {
  LoadOptions& load = plan.load;
  load.chat = plan.chat;
  load.requests = o.num_prompts.value_or(kPromptsDefault);
  load.rate = std::numeric_limits<double>::infinity();
  if (o.request_rate != "inf") {
    const auto rate = number(o.request_rate, "--request-rate");
    if (!rate.ok()) return rate.error();
    if (!(*rate > 0)) return invalid_argument("--request-rate must be above 0, or inf.");
    load.rate = *rate;
  }
  load.burstiness = o.burstiness;
  load.seed = o.seed;
  load.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(o.timeout_s));
  load.max_retries = o.max_retries;
  plan.num_prompts = o.num_prompts;
  plan.num_warmups = o.num_warmups;
  auto bounds = parse_concurrency(o.max_concurrency);
  if (!bounds.ok()) return bounds.error();
  if (bounds->size() == 1) load.max_concurrency = bounds->front();
  if (bounds->size() <= 1) return {};
  const std::uint64_t most = requests_of_streams(bounds->back(), load.turns, o.num_prompts);
  if (most > kPromptsMax)
    return invalid_argument("--max-concurrency " + std::to_string(bounds->back()) + " comes to " +
                            std::to_string(most) + " requests, more than the most, " +
                            std::to_string(kPromptsMax) + "; a given --num-prompts bounds them.");
  plan.series = std::move(*bounds);
  return {};
}

Status resolve_sweep(const ServeOptions& o, ServePlan& plan) {
  using Sweep = ServePlan::Sweep;
  if (o.sweep == "rate")
    plan.sweep = Sweep::kRate;
  else if (o.sweep == "concurrency")
    plan.sweep = Sweep::kConcurrency;
  else if (!o.sweep.empty())
    return invalid_argument("--sweep must be rate or concurrency, not '" + o.sweep + "'.");
  if (plan.sweep != Sweep::kNone && plan.facts.goals.empty())
    return invalid_argument("--sweep goes up until a goal is missed: give one with --goodput.");
  if (plan.sweep == Sweep::kRate && std::isfinite(plan.load.rate))
    return invalid_argument("--sweep rate chooses the rate: leave --request-rate out.");
  if (plan.sweep == Sweep::kConcurrency && !o.max_concurrency.empty())
    return invalid_argument("--sweep concurrency chooses it: leave --max-concurrency out.");
  if (plan.sweep == Sweep::kRate && !plan.series.empty())
    return invalid_argument("--sweep rate goes with one --max-concurrency at most.");
  plan.sweep_from = plan.sweep == Sweep::kConcurrency ? std::ceil(o.sweep_from) : o.sweep_from;
  const std::uint64_t streams_max = plan.load.streams_max();
  if (plan.sweep == Sweep::kConcurrency && plan.sweep_from > static_cast<double>(streams_max))
    return invalid_argument("--sweep-from must be " + std::to_string(streams_max) +
                            " at most, of which --num-prompts has enough.");
  plan.sweep_points = o.sweep_points;
  plan.sweep_good_share = o.sweep_good_share;
  if (o.kill.empty()) return {};
  const auto period = parse_kill(o.kill);
  if (!period.ok()) return period.error();
  plan.kill_every = *period;
  return {};
}

/// That the page can be written at the end of all runs.
Status check_report(const std::string& path) {
  if (path.empty()) return {};
  const std::filesystem::path file = path, folder = file.parent_path();
  std::error_code ignored;
  if (!file.has_filename() || std::filesystem::is_directory(file, ignored))
    return invalid_argument("--report " + path + " is a folder; name the page's file in it.");
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    return invalid_argument("--report " + path + ": there is no folder " + folder.string() + ".");
  return {};
}

}  // namespace

Result<std::vector<std::uint64_t>> parse_concurrency(const std::vector<std::string>& words) {
  std::set<std::uint64_t> bounds;
  for (const std::string& part : all_parts(words)) {
    const std::size_t dots = part.find("..");
    const auto first = whole(std::string_view(part).substr(0, dots));
    const auto last = dots == part.npos ? first : whole(std::string_view(part).substr(dots + 2));
    if (!first || !last || *first < 1 || *last < *first || *last > kPromptsMax)
      return invalid_argument("--max-concurrency takes numbers from 1 to " +
                              std::to_string(kPromptsMax) +
                              " and ranges of them, as 1,2,4..200, but not '" + part + "'.");
    for (std::uint64_t bound = *first; bound < *last; bound *= 2) bounds.insert(bound);
    bounds.insert(*last);
  }
  if (bounds.size() > kSweepPointsMax)
    return invalid_argument("--max-concurrency takes " + std::to_string(kSweepPointsMax) +
                            " different numbers at most.");
  if (bounds.empty() && !words.empty()) return invalid_argument("--max-concurrency has no number.");
  return std::vector<std::uint64_t>(bounds.begin(), bounds.end());
}

std::uint64_t requests_of_streams(std::uint64_t streams, std::uint64_t turns,
                                  std::optional<std::uint64_t> asked) {
  // A stream is a conversation: with fewer of them than the bound, the bound is none.
  return std::max(asked.value_or(streams * kPromptsPerStream), streams * turns);
}

Result<ServePlan> resolve(const ServeOptions& o) {
  if (const Status checked = check_ranges(o); !checked.ok()) return checked.error();
  ServePlan plan;
  auto url = parse_url(o.base_url);
  if (!url.ok()) return url.error();
  auto headers = pairs(o.headers, "--header");
  if (!headers.ok()) return headers.error();
  if (o.api_key.find_first_of("\r\n") != std::string::npos)
    return invalid_argument("--api-key has more than one line.");
  plan.facts.base_url = url->text();
  plan.client = {std::move(*url), o.api_key, std::move(*headers), o.insecure};
  if (o.backend != "openai" && o.backend != "openai-chat")
    return invalid_argument("--backend must be openai or openai-chat, not '" + o.backend + "'.");
  plan.chat = o.backend == "openai-chat";
  for (auto* step :
       {&resolve_dataset, &resolve_fields, &resolve_facts, &resolve_load, &resolve_sweep})
    if (const Status resolved = step(o, plan); !resolved.ok()) return resolved.error();
  plan.json = o.json;
  plan.save_result = o.save_result;
  plan.save_detailed = o.save_detailed;
  plan.result_dir = o.result_dir;
  plan.result_filename = o.result_filename;
  if (const Status can = check_report(o.report); !can.ok()) return can.error();
  plan.report = o.report;
  return plan;
}

}  // namespace troupe::bench
