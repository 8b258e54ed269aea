#include "tools/troupe/bench/worker_killer.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/host.h"

namespace troupe::bench {
namespace {

/// Faster than that no cluster recovers.
constexpr Duration kPeriodMin = std::chrono::milliseconds(100);
constexpr double kPeriodSecondsMax = 86'400;
/// A head that cannot be asked for long must not fill the report.
constexpr std::size_t kMarksMax = 10'000;

}  // namespace

Result<Duration> parse_kill(std::string_view text) {
  const auto wrong = invalid_argument("--kill must be like every=10s, not '" + std::string(text) +
                                      "' (0.1 s to a day).");
  if (!text.starts_with("every=")) return wrong;
  text.remove_prefix(6);
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  if (parsed.ec != std::errc() || (unit != "s" && unit != "ms")) return wrong;
  const double seconds = unit == "ms" ? number / 1000 : number;
  if (!(seconds <= kPeriodSecondsMax)) return wrong;
  const auto period = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  if (period < kPeriodMin) return wrong;
  return period;
}

WorkerKiller::WorkerKiller(HttpClient& client, Duration period, std::uint64_t seed)
    : client_(client), period_(period), host_(host_name()), random_(seed) {}

void WorkerKiller::start() {
  begun_ = next_ = now();
  wait();
}

void WorkerKiller::wait() {
  next_ = std::max(next_ + period_, now());
  client_.at(next_, [this] {
    ask(client_, status_request(), [this](const auto& answer) { on_status(answer); });
    wait();
  });
}

void WorkerKiller::on_status(const Result<HttpAnswer>& answer) {
  if (stopped_ || client_.stopped()) return;
  const auto status = parse_status(answer);
  if (!status.ok()) return say("no kill", status.error().message);
  const auto workers = local_workers(*status, host_);
  if (workers.size() < 2)
    return say("no kill", workers.empty() ? "no worker of this machine is ready"
                                          : "the last ready worker of this machine is left alone");
  const LocalWorker& victim = workers[random_.below(workers.size())];
  const std::string name = victim.node + " (process " + std::to_string(victim.pid) + ")";
  if (const Status killed = kill_worker(victim.pid); !killed.ok())
    return say("no kill", name + ": " + killed.error().message);
  ++killed_;
  say("kill", name);
}

void WorkerKiller::say(const std::string& kind, const std::string& text) {
  if (marks_.size() >= kMarksMax) return;
  marks_.push_back({std::chrono::duration<double>(now() - begun_).count(), kind, text});
}

}  // namespace troupe::bench
