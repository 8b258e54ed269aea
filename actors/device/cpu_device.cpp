#include "actors/device/cpu_device.h"

#include <time.h>

#include <algorithm>
#include <future>
#include <new>
#include <utility>

#include "actors/device/device_kind.h"
#include "runtime/alternate_stack.h"
#include "runtime/float_mode.h"
#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// A chain of dependent multiplications and additions, about 0.2 ms on a core of today at full
/// speed. Nothing but the core's own speed, and whether it is given to this thread, changes that.
float probe_work() {
  constexpr int kSteps = 100'000;
  volatile float start = 1.0f;
  float x = start;
  for (int i = 0; i < kSteps; ++i) x = x * 0.999999f + 1e-6f;
  return x;
}

/// What the calling thread has computed so far.
Duration computed() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

/// For kernels that were never compared with the processor they are for.
constexpr CpuFamily kFallback = CpuFamily::kAvx512;

/// A device that hangs is known before its steps have failed for it.
static_assert(kernels::Accelerator::kWaitMax < limits::kStepSilence);
/// Waits for an accelerator end by then: what lasts longer is a call of its driver.
constexpr std::chrono::seconds kStuck = 2 * kernels::Accelerator::kWaitMax;

double ratio(Duration a, Duration b) {
  return static_cast<double>(a.count()) / static_cast<double>(std::max<std::int64_t>(b.count(), 1));
}

}  // namespace

CpuDevice::CpuDevice(const Options& options)
    : Device(options),
      threads_(options.threads, options.processors),
      backend_(options.backend != nullptr ? options.backend : backend_of(options.kind)),
      family_(options.cpu_family),
      answers_(std::in_place, threads_, stream(Numerics::kReference), options.processors,
               options.known_answers_every),
      thread_([this] { run(); }) {}

Status CpuDevice::open() {
  if (backend_ == nullptr || backend_->accelerator == nullptr) return {};
  auto opened =
      backend_->accelerator({options().number, options().memory_total, &threads_, options().index});
  if (!opened.ok()) return opened.error();
  accelerator_ = std::move(*opened);
  answers_.emplace(threads_, stream(Numerics::kReference), options().processors,
                   options().known_answers_every);
  return {};
}

CpuDevice::~CpuDevice() {
  interrupt();
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(jobs_);
  }
  changed_.notify_all();
  thread_.join();
  pool().clear();
}

Status CpuDevice::submit(std::function<void()> job, Room room) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return unavailable("The device is being stopped.");
    if (room == Room::kBounded && jobs_.size() >= limits::kComputeQueueMax)
      return resource_exhausted("The device's compute queue is full.");
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return {};
}

void CpuDevice::run() {
  const AlternateStack stack;
  set_float_mode();
  if (const Status bound = run_on(options().processors); !bound.ok())
    logger().warn("device {}: {}", options().index, bound.error().message);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    busy_since_ = now();
    lock.unlock();
    const Duration before = computed();
    job();
    job = nullptr;  // what it holds goes before the device counts as idle
    const Duration cpu = computed() - before;
    lock.lock();
    if (!std::exchange(spent_.probe, false)) {
      spent_.computed += cpu;
      spent_.took += now() - busy_since_;
    }
    busy_ = false;
    busy_for_ += now() - std::max(busy_since_, measured_at_);
  }
}

bool CpuDevice::makes_progress(TimePoint now, Duration patience) {
  Duration still;
  {
    std::lock_guard lock(mutex_);
    const std::uint64_t progress =
        threads_.progress() + (accelerator_ ? accelerator_->progress() : 0);
    if (!busy_ || progress != progress_.seen) {
      progress_.seen = progress;
      progress_.at = now;
      return true;
    }
    still = now - std::max(progress_.at, busy_since_);
  }
  if (accelerator_ && still > kStuck && failed().empty())
    fail("its driver has not come back for " + std::to_string(kStuck.count()) +
         " s; restart the worker, and look at the driver's log (dmesg)");
  return still <= patience;
}

void CpuDevice::probe() {
  if (probing_.exchange(true)) return;
  const Status queued = submit([this] {
    if (!accelerator_) measure_core();
    ask_known();
    spent_.probe = true;
    probing_ = false;
  });
  if (!queued.ok()) probing_ = false;
}

void CpuDevice::measure_core() {
  const TimePoint start = now();
  const Duration before = computed();
  volatile float result = probe_work();
  (void)result;
  const Duration cpu = computed() - before;
  Duration wall = now() - start;
  double slowdown = ratio(wall, cpu);
  // With one thread the jobs since the last probe say more: it is short, and fits between two
  // interruptions. With several, the time that this one waits for the others would count.
  if (options().threads == 1) slowdown = ratio(wall + spent_.took, cpu + spent_.computed);
  spent_ = {};
  note_speed(std::chrono::duration<double, std::micro>(cpu).count() * std::max(1.0, slowdown));
}

void CpuDevice::measure_accelerator() {
  if (!speed_probe_) speed_probe_.emplace(stream(Numerics::kBf16));
  note_speed(std::chrono::duration<double, std::micro>(speed_probe_->run()).count());
}

void CpuDevice::note_speed(double us) {
  probe_us_ = static_cast<std::uint32_t>(std::clamp(us, 1.0, 1e9));
}

std::vector<Numerics> CpuDevice::numerics() const { return numerics_of(options().kind, family_); }

Result<CpuDevice::Proven> CpuDevice::prove(std::span<const Numerics> numerics) {
  auto proven = std::make_shared<std::promise<Result<Proven>>>();
  auto answer = proven->get_future();
  const Status queued =
      submit([this, proven, asked = std::vector(numerics.begin(), numerics.end())] {
        spent_.probe = true;
        try {
          proven->set_value(prove_now(asked));
        } catch (const ThreadPool::Interrupted& e) {
          proven->set_value(unavailable(e.what()));
        } catch (const kernels::AcceleratorFailed& e) {
          proven->set_value(unavailable(e.what()));
        } catch (const std::bad_alloc&) {
          proven->set_value(resource_exhausted(
              "it has too little memory to answer questions; give it more with --device-memory"));
        }
      });
  if (!queued.ok()) return queued.error();
  if (answer.wait_for(limits::kProveDeadline) != std::future_status::ready)
    return deadline_exceeded("it did not answer questions whose answers are known in time");
  return answer.get();
}

Result<CpuDevice::Proven> CpuDevice::prove_now(std::span<const Numerics> numerics) {
  Proven proven{{numerics.begin(), numerics.end()}, {}};
  Status right = answers_->begin(proven.numerics, family_);
  if (right.ok() && accelerator_) measure_accelerator();  // and takes the memory for it
  if (right.ok()) return proven;
  if (accelerator_) return right.error();
  std::erase_if(proven.numerics, [&](Numerics n) {
    if (!sums_in_one_chain(n)) return false;
    const Status alone = answers_->begin({&n, 1}, family_);
    if (alone.ok() || !answers_->agreed()) return false;
    proven.notes.push_back("The numerics " + std::string(to_string(n)) +
                           " are not offered: " + alone.error().message + ".");
    return true;
  });
  right = answers_->begin(proven.numerics, family_);
  if (right.ok()) return proven;
  if (!answers_->agreed() || kernels::compared_here(family_)) return right.error();
  proven.notes.push_back("The kernels for " + std::string(to_string(family_)) +
                         " give other numbers on this processor than they must, on all threads "
                         "alike (" +
                         right.error().message + "); those for " +
                         std::string(to_string(kFallback)) + " are used instead.");
  family_ = kFallback;
  if (const Status then = answers_->begin(proven.numerics, family_); !then.ok())
    return then.error();
  return proven;
}

void CpuDevice::ask_known() {
  try {
    try {
      if (const Status right = answers_->next(); !right.ok()) fail(right.error().message);
      if (accelerator_) measure_accelerator();
    } catch (const std::bad_alloc&) {  // they are asked again
      if (!std::exchange(unasked_, true))
        logger().warn(
            "device {}: there is too little memory left to ask it known questions; lower "
            "--kv-cache-memory, or give it more with --device-memory",
            options().index);
      settle();
    }
  } catch (const ThreadPool::Interrupted&) {
    return;  // the device is being stopped
  } catch (const kernels::AcceleratorFailed& e) {
    fail(e.what());
  }
}

float CpuDevice::take_utilization(TimePoint now) {
  std::lock_guard lock(mutex_);
  Duration busy = busy_for_;
  if (busy_) busy += now - std::max(busy_since_, measured_at_);
  const Duration span = now - measured_at_;
  busy_for_ = Duration::zero();
  measured_at_ = now;
  if (span <= Duration::zero()) return 0;
  const double share = std::chrono::duration<double>(busy) / std::chrono::duration<double>(span);
  return static_cast<float>(std::clamp(share, 0.0, 1.0));
}

}  // namespace troupe
