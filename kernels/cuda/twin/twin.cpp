#include "kernels/cuda/twin/twin.h"

#include <cassert>
#include <cstdlib>
#include <numeric>

#include "kernels/cuda/twin/watch.h"
#include "runtime/float_mode.h"
#include "runtime/log.h"

namespace troupe::kernels::cuda_twin {

Twin::Twin(ThreadPool* pool, std::uint64_t seed) : pool_(pool), random_(seed) {
  const int threads = pool == nullptr ? 1 : pool->threads();
  for (int t = 0; t < threads; ++t) machines_.emplace_back(random_.next(), mma_order_of(seed));
}

std::string Twin::run(const Program& program, Grid grid) {
  assert(float_mode_is_set());
  assert(program.threads > 0 && program.threads <= kThreadsMax);
  assert(grid.x >= 0 && grid.x <= kGridXMax && grid.y >= 0 && grid.y <= kGridYMax);
  order_.resize(static_cast<std::size_t>(grid.x * grid.y));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[random_.next() % i]);
  if (!watched_.empty()) return run_watched(program, grid);
  const auto one = [&](int thread, std::size_t i) {
    const std::int64_t cta = order_[i];
    machines_[static_cast<std::size_t>(thread)].run(program, {cta % grid.x, cta / grid.x});
  };
  if (pool_ != nullptr && order_.size() > 1) {
    pool_->parallel_for(order_.size(), one);
  } else {
    for (std::size_t i = 0; i < order_.size(); ++i) one(0, i);
  }
  std::string all;
  for (Machine& m : machines_) {
    const std::string finding = m.take_finding();
    if (all.empty()) all = finding;
  }
  return all;
}

std::string Twin::run_watched(const Program& program, Grid grid) {
  Watch watch(watched_.data(), watched_.size());
  std::string all;
  for (const std::int64_t cta : order_) {
    watch.run(machines_[0], program, {cta % grid.x, cta / grid.x});
    const std::string finding = machines_[0].take_finding();
    if (all.empty()) all = finding;
  }
  const std::string finding = watch.end();
  return all.empty() ? finding : all;
}

void Twin::count(Traffic* traffic) {
  assert(machines_.size() == 1);
  machines_[0].count(traffic);
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
  stop_if_wrong(static_cast<Twin*>(stream.device())->run(program_of(kernel), kernel.grid));
}

}  // namespace troupe::kernels::cuda_twin
