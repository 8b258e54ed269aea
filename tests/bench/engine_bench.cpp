/// Troupe in one process, for tests/bench/run to ask.
///
///     engine_bench MODEL THREADS [KV_CACHE_BYTES [NUMERICS]]
///
/// Loads, prints {"load_s": S}, then answers each line of its input, which describes streams that
/// run together: {"streams": [{"prompt": [ids], "tokens": N, "seed": S, "after": A}, ...]}. Each
/// begins when the first one has got A tokens (0: at once). The answer has the seconds, since that
/// line, when each stream began and when its tokens came: {"begin": [...], "tokens": [[...], ...]}.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/api/cluster.h"
#include "runtime/log.h"
#include "tests/bench/timing.h"

using nlohmann::json;
using troupe::timing::seconds;

namespace {

[[noreturn]] void end_with(const std::string& message) {
  std::fprintf(stderr, "engine_bench: %s\n", message.c_str());
  std::exit(1);
}

/// Streams that run together.
class Run {
 public:
  Run(troupe::Cluster& cluster, const json& streams)
      : cluster_(cluster), streams_(streams), begin_(streams.size()), tokens_(streams.size()) {}

  json finish() {
    std::vector<std::size_t> waiting(streams_.size());
    for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
    while (!waiting.empty()) {
      const std::size_t next = take_due(waiting);
      start(next);
    }
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return done_ == streams_.size(); });
    return {{"begin", begin_}, {"tokens", tokens_}};
  }

 private:
  std::size_t take_due(std::vector<std::size_t>& waiting) {
    std::unique_lock lock(mutex_);
    auto due = waiting.end();
    news_.wait(lock, [&] {
      due = std::find_if(waiting.begin(), waiting.end(), [&](std::size_t i) {
        return streams_[i].value("after", 0u) <= tokens_[0].size();
      });
      return due != waiting.end();
    });
    const std::size_t i = *due;
    waiting.erase(due);
    return i;
  }

  void start(std::size_t i) {
    troupe::GenerationRequest request;
    request.prompt = streams_[i]["prompt"].get<std::vector<troupe::TokenId>>();
    request.max_tokens = streams_[i]["tokens"].get<std::uint32_t>();
    request.seed = streams_[i].value("seed", i);
    request.temperature = 1.0f;
    request.ignore_eos = true;
    request.timeout_ms = 3'600'000;
    begin_[i] = seconds() - start_;
    const auto number = cluster_.stream(request, [this, i](const troupe::GenerationEvent& event) {
      const double at = seconds() - start_;
      if (event.error) end_with(event.error->message);
      const std::lock_guard lock(mutex_);
      tokens_[i].insert(tokens_[i].end(), event.tokens.size(), at);
      if (event.request_done) ++done_;
      news_.notify_one();
    });
    if (!number.ok()) end_with(number.error().message);
  }

  troupe::Cluster& cluster_;
  const json& streams_;
  const double start_ = seconds();
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<double> begin_;                // when each stream began
  std::vector<std::vector<double>> tokens_;  // guarded by mutex_: when they came
  std::size_t done_ = 0;                     // guarded by mutex_
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: engine_bench MODEL THREADS [KV_CACHE_BYTES [NUMERICS]]\n");
    return 2;
  }
  if (!troupe::init_log({"warn", "engine_bench", false}).ok()) return 1;
  troupe::LocalClusterOptions options;
  options.engine.model = argv[1];
  options.engine.request_timeout_s = 3600;
  options.threads = std::atoi(argv[2]);
  if (argc > 3) options.engine.kv_cache_memory = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) options.engine.numerics = troupe::parse_numerics(argv[4]);
  const double start = seconds();
  const auto cluster = troupe::Cluster::start(options);
  if (!cluster.ok()) end_with(cluster.error().message);
  std::printf("%s\n", json{{"load_s", seconds() - start}}.dump().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const json asked = json::parse(line);
    std::printf("%s\n", Run(**cluster, asked["streams"]).finish().dump().c_str());
    std::fflush(stdout);
  }
}
