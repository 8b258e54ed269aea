#include "kernels/cuda/twin/twin.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "kernels/cuda/twin/accelerator.h"
#include "kernels/cuda/twin/watch.h"
#include "runtime/float_mode.h"
#include "runtime/log.h"

namespace troupe::kernels::cuda_twin {
namespace {

// Of the smallest multiprocessor since sm_80.
constexpr int kResidentMax = 16, kResidentThreadsMax = 1536;
constexpr std::size_t kResidentBytesMax = 100u << 10, kSystemBytes = 1u << 10;  // shared memory

/// Turns in which nobody found anything new: CTAs take theirs at random, so each has many.
constexpr int kIdleTurnsMax = 64 * kResidentMax;

int occupancy(const Program& program) {
  const auto by_shared =
      static_cast<int>(kResidentBytesMax / (program.shared_bytes + kSystemBytes));
  return std::clamp(std::min(by_shared, kResidentThreadsMax / program.threads), 1, kResidentMax);
}

}  // namespace

Twin::Twin(ThreadPool* pool, std::uint64_t seed)
    : pool_(pool),
      random_(seed),
      shared_bytes_((seed & kSmallGpu) != 0 ? kWideSharedBytesMax
                    : (seed & kOtherGpu) != 0 ? kLargeSharedBytes
                                              : kMostSharedBytes) {
  const int threads = pool == nullptr ? 1 : pool->threads();
  for (int t = 0; t < threads; ++t)
    multiprocessors_.push_back({SplitMix(random_.next()), mma_order_of(seed)});
}

Machine& Twin::Multiprocessor::place(int i) {
  while (machines.size() <= static_cast<std::size_t>(i))
    machines.emplace_back(random.next(), mma_order);
  return machines[static_cast<std::size_t>(i)];
}

int Twin::choose_resident(const Program& program) {
  if (!program.meets) return 1;  // such a CTA never waits
  if (resident_ > 0) return resident_;
  const std::uint64_t drawn = random_.next() % 3;
  return drawn < 2 ? static_cast<int>(drawn) + 1 : occupancy(program);
}

/// One multiprocessor's part of a launch.
void Twin::share(Launch& launch, Multiprocessor& on) {
  std::vector<int> free, busy;  // places
  for (int i = 0; i < launch.resident; ++i) {
    on.place(i);
    free.push_back(i);
  }
  const auto fill = [&] {
    for (; !free.empty(); free.pop_back()) {
      const std::size_t i = launch.next.fetch_add(1);
      if (i >= order_.size()) return;
      on.place(free.back())
          .begin(launch.program, {order_[i] % launch.grid.x, order_[i] / launch.grid.x});
      busy.push_back(free.back());
    }
  };
  bool moves = true;
  int idle = 0;
  for (fill(); !busy.empty(); fill()) {
    std::swap(busy[on.random.next() % busy.size()], busy.back());
    const Machine::Step step = on.place(busy.back()).advance();
    if (step == Machine::Step::kEnded) {
      free.push_back(busy.back());
      busy.pop_back();
    }
    if (step != Machine::Step::kPolled) {
      ++progress_;
      if (!std::exchange(moves, true)) ++launch.moving;
      idle = 0;
      continue;
    }
    if (std::exchange(moves, false)) --launch.moving;
    idle = launch.moving == 0 ? idle + 1 : 0;
    if (pool_ != nullptr) std::this_thread::yield();
    if (idle < kIdleTurnsMax) continue;
    const bool more = launch.next < order_.size();
    for (const int i : busy)
      on.place(i).abandon(more ? "a CTA that is not resident" : "what no CTA brings");
    free.insert(free.end(), busy.begin(), busy.end());
    busy.clear();
  }
  if (moves) --launch.moving;
}

std::string Twin::run(const Program& program, Grid grid) {
  assert(float_mode_is_set());
  assert(program.threads > 0 && program.threads <= kThreadsMax);
  if (program.shared_bytes > shared_bytes_)
    return "a CTA asks for more shared memory than there is";
  assert(grid.x >= 0 && grid.x <= kGridXMax && grid.y >= 0 && grid.y <= kGridYMax);
  order_.resize(static_cast<std::size_t>(grid.x * grid.y));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[random_.next() % i]);
  if (!watched_.empty()) return run_watched(program, grid);
  Launch launch{program, grid, choose_resident(program)};
  if (pool_ != nullptr && order_.size() > 1) {
    launch.moving = pool_->threads();
    pool_->on_each_thread(
        [&](int thread) { share(launch, multiprocessors_[static_cast<std::size_t>(thread)]); });
  } else {
    share(launch, multiprocessors_[0]);
  }
  std::string all;
  for (Multiprocessor& on : multiprocessors_)
    for (Machine& m : on.machines) {
      const std::string finding = m.take_finding();
      if (all.empty()) all = finding;
    }
  return all;
}

void Twin::launch(const Program& program, Grid grid) {
  if (told_ == nullptr) return stop_if_wrong(run(program, grid));
  if (told_->empty()) *told_ = run(program, grid);
}

std::string Twin::run_watched(const Program& program, Grid grid) {
  Watch watch(watched_.data(), watched_.size());
  std::string all;
  for (const std::int64_t cta : order_) {
    watch.run(multiprocessors_[0].place(0), program, {cta % grid.x, cta / grid.x});
    const std::string finding = multiprocessors_[0].place(0).take_finding();
    if (all.empty()) all = finding;
  }
  const std::string finding = watch.end();
  return all.empty() ? finding : all;
}

void Twin::count(Traffic* traffic) {
  assert(multiprocessors_.size() == 1);
  keep_resident(traffic != nullptr ? 1 : 0);  // accesses of two CTAs would mix
  multiprocessors_[0].place(0).count(traffic);
}

void stop_if_wrong(const std::string& finding) {
  if (finding.empty()) return;
  logger().critical("a kernel of the CUDA back-end is wrong, or how it is used: {}", finding);
  std::abort();
}

Work work_of(const Program& program, std::size_t kernel_bytes, Grid grid) {
  Work work;
  work.from = program.kernel;
  work.bytes = kernel_bytes;
  work.function = reinterpret_cast<const void*>(program.thread);
  work.grid = grid;
  work.threads = program.threads;
  work.shared_bytes = program.shared_bytes;
  work.meets = program.meets;
  return work;
}

Program program_of(const Work& work) {
  return {reinterpret_cast<Program::Thread>(const_cast<void*>(work.function)), work.from,
          work.threads, work.shared_bytes, work.meets};
}

void launch(Stream& stream, const Work& kernel) {
  if (stream.accelerator() != nullptr) return stream.accelerator()->launch(kernel);
  static_cast<Twin*>(stream.device())->launch(program_of(kernel), kernel.grid);
}

std::size_t shared_bytes(Stream& stream) {
  if (stream.accelerator() != nullptr)
    return static_cast<const TwinAccelerator*>(stream.accelerator())->shared_bytes();
  return static_cast<const Twin*>(stream.device())->shared_bytes();
}

bool has_wgmma(Stream& stream) { return shared_bytes(stream) == kMostSharedBytes; }

}  // namespace troupe::kernels::cuda_twin
