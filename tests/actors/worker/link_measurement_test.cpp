#include <doctest/doctest.h>

#include <deque>

#include "actors/worker/link_measurement.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// A link of that rate and delay, both ways alike, that carries one after the other each way.
struct FakeLink {
  double bytes_per_s;
  Duration delay;
  TimePoint now = TimePoint{} + 1h;
  TimePoint free_there{}, free_back{};
  std::size_t most_under_way = 0, bytes = 0;

  struct Coming {
    LinkMeasurement::Probe probe;
    TimePoint at;
  };
  std::deque<Coming> coming = {};

  Duration time_of(std::uint32_t size) const {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(size / bytes_per_s));
  }
  void send(const LinkMeasurement::Probe& probe) {
    free_there = std::max(free_there, now) + time_of(probe.bytes);
    free_back = std::max(free_back, free_there + delay) + time_of(probe.reply_bytes);
    coming.push_back({probe, free_back + delay});
    bytes += probe.bytes + probe.reply_bytes;
    std::size_t under_way = 0;
    for (const Coming& one : coming) under_way += one.probe.bytes + one.probe.reply_bytes;
    most_under_way = std::max(most_under_way, under_way);
  }
  /// Until it is over; how long that took.
  Duration run(LinkMeasurement& m) {
    const TimePoint begin = now;
    while (true) {
      for (const auto& probe : m.next(now)) send(probe);
      if (m.done()) return now - begin;
      REQUIRE(!coming.empty());
      const Coming next = coming.front();
      coming.pop_front();
      now = next.at;
      REQUIRE(m.echoed(next.probe.sequence, next.probe.reply_bytes, now));
    }
  }
};

}  // namespace

TEST_CASE("what a link has is what is measured, within bounds") {
  struct Row {
    double bytes_per_s;
    Duration delay;
    Duration at_most;
  };
  const Row rows[] = {{20e9, 5us, 1s},   {5e9, 30us, 1200ms}, {125e6, 200us, 1500ms},
                      {12.5e6, 1ms, 2s}, {1e6, 5ms, 4s},      {125e6, 20ms, 2s}};
  for (const Row& row : rows) {
    CAPTURE(row.bytes_per_s);
    FakeLink link{row.bytes_per_s, row.delay};
    LinkMeasurement m({64u << 10, 1u << 20});
    CHECK(link.run(m) <= row.at_most);
    const LinkFigures figures = m.figures();
    CHECK(figures.round_trips >= LinkMeasurement::kRoundTripsMin);
    CHECK(figures.round_trips <= LinkMeasurement::kRoundTripsMax);
    const double trip_us = std::chrono::duration<double>(2 * row.delay).count() * 1e6;
    CHECK(figures.p50_us == doctest::Approx(trip_us).epsilon(0.01));
    CHECK(figures.p99_us == doctest::Approx(trip_us).epsilon(0.01));
    REQUIRE(figures.rates.size() == 2);
    CHECK(link.most_under_way <= LinkMeasurement::kUnderWay);
    CHECK(link.bytes <= 4 * LinkMeasurement::kPhaseBytes);
    // Where the round trip is long for what is under way, that is what limits it.
    if (row.delay > 10ms) continue;
    const LinkRate& large = figures.rates[1];
    const bool slow = (1u << 20) / row.bytes_per_s > 0.25;
    if (slow) CHECK(large.there == 0);
    if (!slow) CHECK(large.there == doctest::Approx(row.bytes_per_s).epsilon(0.2));
    if (!slow) CHECK(large.back == doctest::Approx(row.bytes_per_s).epsilon(0.2));
  }
}

TEST_CASE("echoes that were not asked for are none") {
  LinkMeasurement m({1024});
  const TimePoint now = TimePoint{} + 1h;
  CHECK(!m.echoed(1, 0, now));
  REQUIRE(m.next(now).size() == 1);
  CHECK(m.next(now).empty());  // one at a time
  CHECK(!m.echoed(2, 0, now));
  CHECK(!m.echoed(1, 1, now));
  CHECK(m.echoed(1, 0, now));
  CHECK(!m.echoed(1, 0, now));
}
