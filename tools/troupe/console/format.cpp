#include "tools/troupe/console/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace troupe::console {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string scaled(double number, double step, const char* units) {
  while (number >= 999.5 && units[1] != '\0') {
    number /= step;
    ++units;
  }
  const std::string unit = *units == ' ' ? "" : std::string(1, *units);
  // Two digits and one behind the point, or three.
  const bool whole =
      number >= 99.95 || ((unit.empty() || unit == "B") && number == std::floor(number));
  return format(whole ? "%.0f" : "%.1f", number) + unit;
}

std::string link_speed(double bytes_per_s, double round_trip_us) {
  return (bytes_per_s > 0 ? format("%.3g GB/s", bytes_per_s * 1e-9) : "- GB/s") +
         format("  %.0f us", round_trip_us);
}

std::string link_line(const LinkFacts& link) {
  std::string text = link.lower + " <> " + link.higher + "  ";
  if (link.error.empty())
    text += link.provider + " " + link.interface + "  " +
            link_speed(link.bytes_per_s, link.round_trip_us);
  else
    text += "failed: " + link.error;
  return text + "  measured " + short_time(link.age_s) + " ago";
}

/// Of those that were measured.
std::string all_links(const std::vector<LinkFacts>& links) {
  std::vector<double> rates, trips;
  for (const LinkFacts& link : links) {
    if (!link.error.empty()) continue;
    rates.push_back(link.bytes_per_s);
    trips.push_back(link.round_trip_us);
  }
  const auto middle = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const std::size_t failed = links.size() - rates.size();
  std::string text = std::to_string(links.size()) + " pairs";
  if (failed > 0) text += ", " + std::to_string(failed) + " failed";
  if (!rates.empty()) text += ", median " + link_speed(middle(rates), middle(trips));
  return text + "; the worst:";
}

}  // namespace

std::string short_bytes(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, "BKMGTPE");
}
std::string short_number(double number) { return scaled(number, 1000, " kMGT"); }

std::string short_time(double seconds) {
  if (seconds < 9.95) return format("%.1fs", std::max(0.0, seconds));
  const auto s = static_cast<std::int64_t>(std::min(seconds, 1e15));
  if (s < 60) return format("%llds", static_cast<long long>(s));
  const auto two = [](std::int64_t a, char x, std::int64_t b, char y) {
    return format("%lld%c%02lld%c", static_cast<long long>(a), x, static_cast<long long>(b), y);
  };
  if (s < 3600) return two(s / 60, 'm', s % 60, 's');
  if (s < 86400) return two(s / 3600, 'h', s / 60 % 60, 'm');
  return two(s / 86400, 'd', s / 3600 % 24, 'h');
}

std::string percent(double fraction) {
  return format("%.0f%%", 100 * std::clamp(fraction, 0.0, 9.99));
}

std::string quantiles(const std::optional<QuantileFacts>& ms) {
  if (!ms) return "-";
  const auto one = [](double x) { return format(x < 9.95 ? "%.1f" : "%.0f", x); };
  return one(ms->p50) + "/" + one(ms->p99);
}

std::string clock_time(double unix_s, int utc_offset_s) {
  const auto s = static_cast<std::int64_t>(std::clamp(unix_s, 0.0, 1e12)) + utc_offset_s;
  const auto of_day = ((s % 86400) + 86400) % 86400;
  return format("%02d:%02d:%02d", static_cast<int>(of_day / 3600),
                static_cast<int>(of_day / 60 % 60), static_cast<int>(of_day % 60));
}

std::string some_of(const std::vector<std::string>& words, std::size_t shown_max) {
  std::string out;
  // One more is shown rather than counted.
  const std::size_t shown = words.size() <= shown_max + 1 ? words.size() : shown_max;
  for (std::size_t i = 0; i < shown; ++i) out += (i > 0 ? ", " : "") + words[i];
  if (shown < words.size()) out += " and " + std::to_string(words.size() - shown) + " more";
  return out;
}

std::string survives_text(const Facts& facts) {
  const SurvivesFacts& s = facts.survives;
  if (!s.known || s.at_once.size() + s.with_reload.size() + s.not_at_all.size() == 0) return "";
  if (s.with_reload.empty() && s.not_at_all.empty())
    return "survives the loss of any one node at once";
  if (s.at_once.empty() && s.not_at_all.empty())
    return "survives the loss of any one node with a reload";
  if (s.at_once.empty() && s.with_reload.empty()) return "survives the loss of no node";
  constexpr std::size_t kShown = 3;
  std::string out;
  const auto add = [&](const std::vector<std::string>& nodes, const char* how) {
    if (nodes.empty()) return;
    out += (out.empty() ? "" : "; ") + some_of(nodes, kShown) + " " + how;
  };
  add(s.at_once, "at once");
  add(s.with_reload, "with a reload");
  add(s.not_at_all, "not at all");
  return "survives the loss of " + out;
}

std::string proofs_text(const Facts& facts) {
  const ProofFacts& p = facts.proofs;
  if (p.parts <= 0) return "";
  std::string out = std::to_string(p.proven) + " of " + std::to_string(p.parts) + " parts proven";
  if (p.oldest_s) out += ", the oldest " + short_time(*p.oldest_s) + " ago";
  if (p.round_s && *p.round_s > 0) out += ", a round takes " + short_time(*p.round_s);
  if (p.refused > 0)
    out += p.refused == 1 ? ", 1 copy taken out"
                          : ", " + std::to_string(p.refused) + " copies taken out";
  return out;
}

std::string rates_text(const Facts& facts) {
  if (!facts.rates_known) return "";
  return "tokens/s in " + short_number(facts.prompt_tokens_per_s) + " out " +
         short_number(facts.generation_tokens_per_s) + "   ms p50/p99: first token " +
         quantiles(facts.first_token_ms) + ", between " + quantiles(facts.inter_token_ms);
}

std::vector<std::string> network_lines(const Facts& facts) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> lines;
  if (facts.links.size() > kShown) lines.push_back(all_links(facts.links));
  for (const LinkFacts& link : facts.links)
    if (lines.size() < kShown) lines.push_back(link_line(link));
  return lines;
}

std::string requests_text(const Facts& facts) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  return number(facts.running) + " running, " + number(facts.waiting) + " waiting, " +
         number(facts.finished) + " finished, " + number(facts.failed) + " failed, " +
         number(facts.replayed) + " replayed";
}

std::string standby_text(const Facts& facts) {
  return facts.standby.address.empty() ? "" : facts.standby.address + " " + facts.standby.state;
}

std::vector<std::string> expert_clauses(const Facts& facts) {
  const ExpertFacts& e = facts.experts;
  if (e.experts == 0 || e.layers.empty()) return {};
  std::vector<std::string> out{
      std::to_string(e.layers.size()) + " layers of " + std::to_string(e.experts),
      std::to_string(e.copies) + " copies a layer"};
  if (e.imbalance) out.push_back(format("imbalance %.2f", *e.imbalance));
  if (e.moves_pending > 0) out.push_back(std::to_string(e.moves_pending) + " moving");
  if (e.last_rebalance_s) out.push_back("balanced " + short_time(*e.last_rebalance_s) + " ago");
  return out;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : std::string(separator)) + word;
  return out;
}

std::string kv_text(const ReplicaFacts& replica) {
  std::string text = std::to_string(replica.kv_used) + " of " + std::to_string(replica.kv_total);
  if (replica.kv_cached > 0) text += ", " + std::to_string(replica.kv_cached) + " kept";
  return text;
}

std::string kv_short(const ReplicaFacts& replica) {
  const auto number = [](std::int64_t n) { return short_number(static_cast<double>(n)); };
  const std::string kept = replica.kv_cached > 0 ? "+" + number(replica.kv_cached) : "";
  return number(replica.kv_used) + kept + "/" + number(replica.kv_total);
}

std::string shard_text(const ShardFacts& shard) {
  std::string text = std::to_string(shard.first) + "-" + std::to_string(shard.last) + " ";
  if (shard.tp_ranks > 1)
    text += "rank " + std::to_string(shard.tp_rank) + " of " + std::to_string(shard.tp_ranks) + " ";
  return text + shard.device;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    out += (out.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (j > i) out += "-" + std::to_string(numbers[j]);
    i = j + 1;
  }
  return out;
}

}  // namespace troupe::console
