#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "kernels/graph_queue.h"

/// What a GPU is given, by CUDA's calls. **Not run on a GPU yet.**
namespace troupe::kernels::cuda {

/// Into the stream's queue, by itself.
cudaError_t submit(const Work& work, cudaStream_t stream);

/// A batch as an executable graph, one node after the other (CUDA C++ Programming Guide, "CUDA
/// Graphs").
class GpuGraph final : public GraphQueue::Graph {
 public:
  /// What CUDA refuses. Nothing counts after it.
  using Must = void (*)(void* device, cudaError_t status);
  GpuGraph(std::span<const Work> batch, cudaStream_t stream, void* device, Must must);
  ~GpuGraph() override;

  void change(std::size_t at, const Work& work) override;
  void launch() override;

 private:
  void must(cudaError_t status) const { must_(device_, status); }

  const cudaStream_t stream_;
  void* const device_;
  const Must must_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<cudaGraphNode_t> nodes_;
};

}  // namespace troupe::kernels::cuda
