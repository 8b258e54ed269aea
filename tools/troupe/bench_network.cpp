#include "tools/troupe/bench_network.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>

#include "actors/api/operation.h"
#include "actors/control/caf_system.h"
#include "runtime/byte_size.h"
#include "runtime/clock.h"
#include "tools/troupe/bench/network_report.h"
#include "tools/troupe/cluster_files.h"
#include "tools/troupe/failure.h"
#include "tools/troupe/operation.h"

namespace troupe::cli {
namespace {

constexpr Duration kConnectWithin = std::chrono::seconds(3);
constexpr Duration kProgressEvery = std::chrono::seconds(1);

Result<NetworkQuery> query_of(const NetworkOptions& o) {
  NetworkQuery query{kOperationQuery, {}, o.pairs, {}, o.while_serving, o.one_at_a_time};
  if (!o.node.empty()) {
    const auto node = parse_node(o.node);
    if (!node.ok()) return node.error();
    query.node = *node;
  }
  for (const std::string& text : o.sizes) {
    const auto bytes = parse_byte_size(text);
    if (!bytes.ok()) return invalid_argument("--size: " + bytes.error().message);
    if (*bytes == 0 || *bytes > kProbeBytesMax)
      return invalid_argument("--size takes 1KiB to " + format_byte_size(kProbeBytesMax) +
                              ", not '" + text + "'.");
    query.sizes.push_back(static_cast<std::uint32_t>(*bytes));
  }
  std::sort(query.sizes.begin(), query.sizes.end());
  query.sizes.erase(std::unique(query.sizes.begin(), query.sizes.end()), query.sizes.end());
  if (query.sizes.size() > kProbeSizesMax)
    return invalid_argument("--size can be given " + std::to_string(kProbeSizesMax) +
                            " times at most.");
  return query;
}

/// What comes of pairs, from the control lane's thread.
class Reports {
 public:
  void on_message(const Message& message) {
    std::lock_guard lock(mutex_);
    if (const auto* plan = std::get_if<NetworkPlan>(&message)) run_.plan = *plan;
    // A head that says more than it planned is not listened to.
    if (const auto* pair = std::get_if<PairReport>(&message);
        pair && run_.pairs.size() < std::min(run_.plan.pairs, kBenchPairsMax))
      run_.pairs.push_back(*pair);
  }
  bench::NetworkRun run() const {
    std::lock_guard lock(mutex_);
    return run_;
  }

 private:
  mutable std::mutex mutex_;
  bench::NetworkRun run_;  // guarded by mutex_
};

Result<std::string> measure(const std::string& state_dir, const NetworkQuery& query,
                            const std::shared_ptr<Reports>& reports) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  const auto open = [&](ClientSession::Events events) {
    events.message = [reports, next = std::move(events.message)](const Message& message) {
      reports->on_message(message);
      next(message);
    };
    return ClientSession::open((*caf)->system(), *join, "troupe bench network", kConnectWithin,
                               std::move(events));
  };
  TimePoint told = now();
  const auto show = [&](const OperationProgress& news) {
    if (now() - told < kProgressEvery) return;
    told = now();
    std::fprintf(stderr, "%llu of %llu %s\n", static_cast<unsigned long long>(news.done),
                 static_cast<unsigned long long>(news.total), news.text.c_str());
  };
  return troupe::follow_operation(
      open, [&](ClientSession& head) { return head.send(NetworkQuery(query)); }, show);
}

}  // namespace

int bench_network(const std::string& state_dir, const NetworkOptions& o) {
  const auto query = query_of(o);
  if (!query.ok()) return fail_with(query.error());
  const auto reports = std::make_shared<Reports>();
  const TimePoint begin = now();
  const auto over = measure(state_dir, *query, reports);
  bench::NetworkRun run = reports->run();
  run.duration_s = std::chrono::duration<double>(now() - begin).count();
  run.complete = over.ok();
  // What was measured before it ended counts.
  if (over.ok() || !run.pairs.empty())
    std::printf("%s%s",
                o.json ? bench::network_json(run).c_str() : bench::network_text(run).c_str(),
                o.json ? "\n" : "");
  if (!over.ok()) return fail(over.error());
  const auto failed = bench::summarize(run).failed;
  if (failed > 0)
    return fail(unavailable(std::to_string(failed) + " of " + std::to_string(run.plan.pairs) +
                            " pairs could not be measured."));
  return kDone;
}

}  // namespace troupe::cli
