/// The simulation's tensor-parallel ranks.
#include <algorithm>

#include "runtime/limits.h"
#include "tests/sim/fake_compute.h"
#include "tests/sim/fake_rows.h"
#include "tests/sim/world.h"

namespace troupe::sim {

/// Rows that a rank asks experts for begin there.
std::size_t FakeCompute::first_row(const Run& run, std::uint32_t rank) const {
  return run.rows.size() * rank / spec_.layers.rank.size;
}

bool FakeCompute::exchange(Run& run, const RowsFor& to, const CountFrom& rows) {
  if (run.given_up) {
    tell(run, error("Nobody wants the step any more."));
    return false;
  }
  const std::uint32_t self = spec_.layers.rank.rank, size = spec_.layers.rank.size;
  PartsExchange exchange{run.id, ++run.exchange, std::vector<Payload>(size),
                         std::vector<std::size_t>(size)};
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    if (rank == self) continue;
    exchange.to[rank] = write_rows(to(rank));
    exchange.bytes[rank] = rows(rank) * kRowBytes;
  }
  run.exchanging_since = host_.now();
  const std::shared_ptr<ShardNews> news = run.news.lock();
  const auto state = std::make_shared<std::pair<bool, bool>>(false, false);  // here, left
  ranks_->start(std::move(exchange), [this, &run, state, news,
                                      step = run.id](Result<std::vector<Payload>> parts) {
    if (!state->second) {
      state->first = true;
      run.parts = std::move(*parts);
      return;
    }
    (void)device().submit(
        [this, news, step, parts = std::move(parts)]() mutable { heard(step, std::move(parts)); },
        Device::Room::kAlways);
  });
  state->second = true;
  if (state->first) run.exchanging_since = TimePoint::max();
  return state->first;
}

void FakeCompute::heard(StepId step, Result<std::vector<Payload>> parts) {
  const auto it = runs_.find(step);
  if (it == runs_.end()) return;
  Run& run = *it->second;
  run.exchanging_since = TimePoint::max();
  if (const std::string failed = spec_.device->failed(); !failed.empty())
    return tell(run, error("The device has failed: " + failed + "."));
  if (!parts.ok()) return tell(run, wrong("A part of another rank has the wrong length."));
  run.parts = std::move(*parts);
  advance(run);
}

bool FakeCompute::stop_waiting(Run& run) {
  run.exchanging_since = TimePoint::max();
  return ranks_ && ranks_->forget(run.id);
}

bool FakeCompute::hears_ranks(TimePoint now) const {
  return std::ranges::none_of(runs_, [&](const auto& entry) {
    return entry.second->exchanging_since < now - limits::kExpertSilence;
  });
}

}  // namespace troupe::sim
