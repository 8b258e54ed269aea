#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/backend.h"

namespace troupe::kernels::cuda {

/// An NVIDIA GPU: one pool of its memory, taken when it is opened, and one CUDA stream. Uploads go
/// by a stream of their own through pinned memory, from any thread.
class GpuAccelerator final : public Accelerator {
 public:
  /// A sentence for what stands in the way: no GPU, an old driver, a GPU that this program has no
  /// code for, that another process holds or has filled.
  static Result<std::shared_ptr<Accelerator>> open(const AcceleratorOptions& options);
  ~GpuAccelerator() override;

  std::shared_ptr<std::byte> memory(std::size_t bytes) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  /// From another GPU of this process: straight where the driver allows, else by its staging.
  void upload_from(std::byte* to, Accelerator& of, const std::byte* from,
                   std::size_t bytes) override;
  std::uint64_t progress() const override { return progress_; }
  std::chrono::nanoseconds timed(const std::function<void()>& work) override;

  /// Where work goes, once it is flushed.
  cudaStream_t queue() const { return stream_; }

  std::size_t shared_bytes() const { return shared_bytes_; }
  bool has_wgmma() const { return has_wgmma_; }

 protected:
  void attach() override;
  void joins(const Work& work) override;
  void note_given() override;
  void wait_given() override;
  /// Straight where the driver allows, else by its staging.
  void give_copy(std::byte* to, Accelerator& of, const std::byte* from, std::size_t bytes) override;
  void run(const Work& work) override;
  std::unique_ptr<GraphQueue::Graph> capture(std::span<const Work> batch) override;

 private:
  struct Pool;
  struct Freer;
  /// Half of the room that uploads go through.
  struct Piece {
    std::shared_ptr<std::byte> pinned;
    cudaEvent_t copied = nullptr;
  };
  GpuAccelerator(int index, std::size_t staging_bytes);
  /// Host memory of this GPU's context.
  std::shared_ptr<std::byte> pinned(std::size_t bytes);
  Status take(std::uint64_t memory_bytes);
  /// Lets copies come straight from another GPU, if the driver does.
  void reach(int other);
  /// Sleeps until the GPU has come past it, or the device is given up. Fails it if that takes too
  /// long.
  void wait_for(cudaEvent_t event, const char* what);
  /// Waits for the first batch that is under way.
  void wait_first();
  /// Fails the device with words for people, unless all is well.
  void must(cudaError_t status, const char* what);

  const int index_;
  const std::size_t shared_bytes_;
  const bool has_wgmma_;
  const std::shared_ptr<Freer> freer_;
  std::shared_ptr<Pool> pool_;
  cudaStream_t stream_ = nullptr, upload_stream_ = nullptr;
  std::deque<cudaEvent_t> under_way_;  ///< the end of each batch
  std::vector<cudaEvent_t> spare_;
  cudaEvent_t timed_from_ = nullptr, timed_to_ = nullptr;
  std::mutex upload_mutex_;
  std::array<Piece, 2> pieces_;  // guarded by upload_mutex_
  std::mutex peers_mutex_;
  std::set<int> peers_;  // guarded by peers_mutex_
  std::atomic<std::uint64_t> progress_{0};
};

/// What a CTA of the i-th GPU may ask for of shared memory; 0 if CUDA does not say.
std::size_t shared_bytes_of(int index);

/// Whether the i-th GPU runs code of sm_90a, and this program has it.
bool has_wgmma_of(int index);

/// cudaSuccess if this program has code for the calling thread's GPU (probe.cu).
cudaError_t has_code();

}  // namespace troupe::kernels::cuda
