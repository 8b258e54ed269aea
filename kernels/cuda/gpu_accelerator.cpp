#include "kernels/cuda/gpu_accelerator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "kernels/cuda/address_pool.h"
#include "kernels/cuda/gpu_errors.h"
#include "kernels/cuda/gpu_work.h"
#include "kernels/cuda/gpus.h"
#include "kernels/cuda/late_release.h"

namespace troupe::kernels::cuda {
namespace {

constexpr std::size_t kUploadPieceBytes = 4u << 20;
/// Without a way of their own they pass through the host.
constexpr std::size_t kPeerPieceBytes = 64u << 20;
/// Batches that the GPU has been given and has not ended.
constexpr std::size_t kBatchesMax = 64;
/// What is soon done is waited for without sleep, which Linux makes some 50 us longer than asked
/// for; CUDA's own waits take a core, and cannot be given up.
constexpr std::chrono::microseconds kSpin(50), kSleep(20);

}  // namespace

/// Frees what is CUDA's, from any thread: one that has no current device, or another, would free it
/// there. Once the GPU hangs nothing is freed: CUDA waits for the GPU first.
struct GpuAccelerator::Freer {
  explicit Freer(int i) : index(i) {}
  template <class Free>
  void operator()(std::byte* memory, const Free& free) const {
    if (hangs) return;
    cudaSetDevice(index);
    free(memory);
  }

  const int index;
  std::atomic<bool> hangs{false};
};

/// All memory that it may take. Outlives the device, as long as somebody holds some of it.
struct GpuAccelerator::Pool {
  Pool(std::shared_ptr<const Freer> f, std::shared_ptr<MemoryNews> n, std::byte* b,
       std::size_t bytes)
      : freer(std::move(f)),
        news(std::move(n)),
        base(b),
        free(bytes, kAlignment),
        late([this](std::byte* p) { give_back(p); }) {}
  ~Pool() { (*freer)(base, cudaFree); }

  std::byte* take(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const auto run = free.take(bytes);
    if (!run) std::__throw_bad_alloc();
    taken[base + run->at] = *run;
    return base + run->at;
  }
  void give_back(std::byte* p) {
    {
      const std::lock_guard lock(mutex);
      const auto run = taken.find(p);
      free.give_back(run->second);
      taken.erase(run);
    }
    news->note();
  }

  const std::shared_ptr<const Freer> freer;
  const std::shared_ptr<MemoryNews> news;
  std::byte* const base;
  std::mutex mutex;
  AddressPool free;                              // guarded by mutex
  std::map<std::byte*, AddressPool::Run> taken;  // guarded by mutex
  LateRelease late;
};

GpuAccelerator::GpuAccelerator(int index, std::size_t staging_bytes)
    : Accelerator([this](std::size_t bytes) { return pinned(bytes); }, staging_bytes),
      index_(index),
      shared_bytes_(shared_bytes_of(index)),
      has_wgmma_(has_wgmma_of(index)),
      freer_(std::make_shared<Freer>(index)) {}

std::size_t shared_bytes_of(int index) {
  int bytes = 0;
  const cudaError_t known =
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  return known == cudaSuccess ? static_cast<std::size_t>(bytes) : 0;
}

bool has_wgmma_of(int index) {
#ifdef TROUPE_SM90A
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) == cudaSuccess &&
         major == 9 && minor == 0;
#else
  return index < 0;
#endif
}

std::shared_ptr<std::byte> GpuAccelerator::pinned(std::size_t bytes) {
  attach();
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) std::__throw_bad_alloc();
  must(status, "it gives no pinned memory");
  return {static_cast<std::byte*>(data),
          [freer = freer_](std::byte* p) { (*freer)(p, cudaFreeHost); }};
}

Result<std::shared_ptr<Accelerator>> GpuAccelerator::open(const AcceleratorOptions& options) {
  int count = 0;
  if (const cudaError_t found = cudaGetDeviceCount(&count); found != cudaSuccess)
    return unusable(options.index, found);
  if (options.index < 0 || options.index >= count)
    return invalid_argument("there is no " + gpu_name(options.index) + "; this process may use " +
                            std::to_string(count) + ", which are counted from 0");
  // The first call that needs the device opens it.
  cudaError_t opened = cudaSetDevice(options.index);
  if (opened == cudaSuccess) opened = cudaFree(nullptr);
  if (opened == cudaSuccess) opened = has_code();
  if (opened != cudaSuccess) return unusable(options.index, opened);
  try {
    std::shared_ptr<GpuAccelerator> device(
        new GpuAccelerator(options.index, options.staging_bytes));
    if (const Status taken = device->take(options.memory_bytes); !taken.ok()) return taken.error();
    return std::shared_ptr<Accelerator>(std::move(device));
  } catch (const AcceleratorFailed& failed) {
    return unavailable(gpu_name(options.index) + " cannot be used: " + failed.what());
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no pinned host memory for " + gpu_name(options.index));
  }
}

/// All that it will ever use of the GPU's memory, so that what is not there is known at once.
Status GpuAccelerator::take(std::uint64_t memory_bytes) {
  std::size_t left = 0, all = 0;
  void* base = nullptr;
  cudaError_t status = cudaMemGetInfo(&left, &all);
  if (status == cudaSuccess) status = cudaMalloc(&base, memory_bytes);
  if (status == cudaErrorMemoryAllocation) return no_room(index_, left, all, memory_bytes);
  if (status != cudaSuccess) return unusable(index_, status);
  pool_ =
      std::make_shared<Pool>(freer_, memory_news(), static_cast<std::byte*>(base), memory_bytes);
  constexpr unsigned kNoTiming = cudaEventDisableTiming;
  status = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (status == cudaSuccess)
    status = cudaStreamCreateWithFlags(&upload_stream_, cudaStreamNonBlocking);
  for (cudaEvent_t* const event : {&timed_from_, &timed_to_})
    if (status == cudaSuccess) status = cudaEventCreate(event);
  for (Piece& piece : pieces_) {
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&piece.copied, kNoTiming);
    piece.pinned = pinned(kUploadPieceBytes);
  }
  return status == cudaSuccess ? Status() : Status(unusable(index_, status));
}

GpuAccelerator::~GpuAccelerator() {
  cudaSetDevice(index_);
  try {
    check();
    wait_given();
  } catch (const AcceleratorFailed&) {
    // What has failed cannot be closed in order, and need not be.
  }
  if (pool_) pool_->late.note_all_ran();
  if (freer_->hangs) return;
  for (const Piece& piece : pieces_)
    if (piece.copied != nullptr) cudaEventDestroy(piece.copied);
  for (const cudaEvent_t event : {timed_from_, timed_to_})
    if (event != nullptr) cudaEventDestroy(event);
  for (const cudaEvent_t event : under_way_) cudaEventDestroy(event);
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
  if (upload_stream_ != nullptr) cudaStreamDestroy(upload_stream_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void GpuAccelerator::must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  pool_->late.note_all_ran();
  fail(failure(what, status));
}

std::shared_ptr<std::byte> GpuAccelerator::memory(std::size_t bytes) {
  return {pool_->take(bytes), [pool = pool_](std::byte* p) { pool->late.release(p); }};
}

/// A piece is filled while the one before is copied.
void GpuAccelerator::upload(std::byte* to, std::span<const std::byte> from) {
  check();
  const std::lock_guard lock(upload_mutex_);
  attach();
  for (std::size_t done = 0, i = 0; done < from.size(); ++i) {
    const Piece& piece = pieces_[i % pieces_.size()];
    const std::size_t bytes = std::min(kUploadPieceBytes, from.size() - done);
    wait_for(piece.copied, "a copy failed");
    std::memcpy(piece.pinned.get(), from.data() + done, bytes);
    must(cudaMemcpyAsync(to + done, piece.pinned.get(), bytes, cudaMemcpyHostToDevice,
                         upload_stream_),
         "a copy failed");
    must(cudaEventRecord(piece.copied, upload_stream_), "a copy failed");
    done += bytes;
    ++progress_;
  }
  for (const Piece& piece : pieces_) wait_for(piece.copied, "a copy failed");
}

void GpuAccelerator::download(std::span<std::byte> to, const std::byte* from) {
  check();
  const std::lock_guard lock(upload_mutex_);
  attach();
  const Piece& piece = pieces_.front();
  for (std::size_t done = 0; done < to.size();) {
    const std::size_t bytes = std::min(kUploadPieceBytes, to.size() - done);
    must(cudaMemcpyAsync(piece.pinned.get(), from + done, bytes, cudaMemcpyDeviceToHost,
                         upload_stream_),
         "a copy failed");
    must(cudaEventRecord(piece.copied, upload_stream_), "a copy failed");
    wait_for(piece.copied, "a copy failed");
    std::memcpy(to.data() + done, piece.pinned.get(), bytes);
    done += bytes;
    ++progress_;
  }
}

/// Once it may, copies need not pass through the host. That it may not is no failure.
void GpuAccelerator::reach(int other) {
  const std::lock_guard lock(peers_mutex_);
  if (other == index_ || !peers_.insert(other).second) return;
  int may = 0;
  if (cudaDeviceCanAccessPeer(&may, index_, other) == cudaSuccess && may != 0)
    cudaDeviceEnablePeerAccess(other, 0);
  cudaGetLastError();
}

void GpuAccelerator::upload_from(std::byte* to, Accelerator& of, const std::byte* from,
                                 std::size_t bytes) {
  const auto* other = dynamic_cast<const GpuAccelerator*>(&of);
  if (other == nullptr) return Accelerator::upload_from(to, of, from, bytes);
  check();
  std::unique_lock lock(upload_mutex_);
  attach();
  other->check();  // whose fault it would be
  reach(other->index_);
  const cudaEvent_t copied = pieces_.front().copied;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPeerPieceBytes, bytes - done);
    if (cudaMemcpyPeerAsync(to + done, index_, from + done, other->index_, piece, upload_stream_) !=
        cudaSuccess) {
      cudaGetLastError();
      lock.unlock();
      return Accelerator::upload_from(to, of, from, bytes);  // whose fault it is shows there
    }
    must(cudaEventRecord(copied, upload_stream_), "a copy from another GPU failed");
    wait_for(copied, "a copy from another GPU failed");
    done += piece;
    ++progress_;
  }
}

// --- The queue ----------------------------------------------------------------------------------

void GpuAccelerator::attach() { must(cudaSetDevice(index_), "it does not answer"); }

void GpuAccelerator::joins(const Work&) {
  pool_->late.note_queued();
  ++progress_;
}

void GpuAccelerator::run(const Work& work) {
  must(submit(work, stream_),
       work.kind == Work::Kind::kKernel ? "a kernel did not start" : "a copy failed");
}

std::unique_ptr<GraphQueue::Graph> GpuAccelerator::capture(std::span<const Work> batch) {
  return std::make_unique<GpuGraph>(batch, stream_, this, [](void* device, cudaError_t status) {
    static_cast<GpuAccelerator*>(device)->must(status, "a graph of kernels did not start");
  });
}

void GpuAccelerator::note_given() {
  if (under_way_.size() == kBatchesMax) wait_first();
  if (spare_.empty()) {
    spare_.push_back(nullptr);
    must(cudaEventCreateWithFlags(&spare_.back(), cudaEventDisableTiming), "it does not answer");
  }
  must(cudaEventRecord(spare_.back(), stream_), "it does not answer");
  under_way_.push_back(spare_.back());
  spare_.pop_back();
}

void GpuAccelerator::wait_for(cudaEvent_t event, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const auto waited = std::chrono::steady_clock::now() - start;
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return must(status, what);
    if (waited > kWaitMax) {
      freer_->hangs = true;
      fail("it has not ended within " + std::to_string(kWaitMax.count()) +
           " s what it was given; restart the worker, and look at the driver's log (dmesg)");
    }
    if (waited > kSpin && fails_within(kSleep)) {
      freer_->hangs = true;  // what it computes may still be under way
      check();
    }
  }
}

void GpuAccelerator::wait_first() {
  wait_for(under_way_.front(), "what it computed failed");
  spare_.push_back(under_way_.front());
  under_way_.pop_front();
  ++progress_;
}

/// Work of before the first event hides how long the host takes to queue what is between the two.
std::chrono::nanoseconds GpuAccelerator::timed(const std::function<void()>& work) {
  flush(true);
  must(cudaEventRecord(timed_from_, stream_), "it does not answer");
  work();
  flush(true);
  must(cudaEventRecord(timed_to_, stream_), "it does not answer");
  wait();
  float ms = 0;
  must(cudaEventElapsedTime(&ms, timed_from_, timed_to_), "it does not answer");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<float, std::milli>(ms));
}

void GpuAccelerator::give_copy(std::byte* to, Accelerator& of, const std::byte* from,
                               std::size_t bytes) {
  const auto* const other = dynamic_cast<const GpuAccelerator*>(&of);
  if (other == nullptr) return Accelerator::give_copy(to, of, from, bytes);
  attach();
  reach(other->index_);
  must(cudaMemcpyPeerAsync(to, index_, from, other->index_, bytes, stream_),
       "a copy from another GPU failed");
  pool_->late.note_queued();
  note_given();
  ++progress_;
}

/// Batch by batch: each that ends is progress.
void GpuAccelerator::wait_given() {
  while (!under_way_.empty()) wait_first();
  if (pool_) pool_->late.note_all_ran();
}

}  // namespace troupe::kernels::cuda

namespace troupe::kernels {

Result<std::vector<Gpu>> gpus() {
  int count = 0;
  if (const cudaError_t found = cudaGetDeviceCount(&count); found != cudaSuccess)
    return cuda::unusable(0, found);
  std::vector<Gpu> all;
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp told{};
    char bus_id[32] = {};
    cudaError_t status = cudaGetDeviceProperties(&told, number);
    if (status == cudaSuccess) status = cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, number);
    if (status != cudaSuccess) return cuda::unusable(number, status);
    const std::string architecture =
        "sm_" + std::to_string(told.major) + std::to_string(told.minor);
    all.push_back({told.name, bus_id, architecture, told.totalGlobalMem});
  }
  return all;
}

}  // namespace troupe::kernels
