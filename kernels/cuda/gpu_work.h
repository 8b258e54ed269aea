#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/graph_queue.h"

/// What a GPU is given, by CUDA's calls.
namespace troupe::kernels::cuda {

/// Into the stream's queue, by itself.
cudaError_t submit(const Work& work, cudaStream_t stream);

/// A batch as an executable graph, one node after the other (CUDA C++ Programming Guide, "CUDA
/// Graphs"). A graph takes memory of the GPU beside what was taken at the start: where there is
/// none, the batch goes work by work.
class GpuGraph final : public GraphQueue::Graph {
 public:
  /// What CUDA refuses; throws. Nothing counts after it.
  using Must = void (*)(void* device, cudaError_t status);
  GpuGraph(std::span<const Work> batch, cudaStream_t stream, void* device, Must must);
  void change(std::size_t at, const Work& work) override;
  void launch() override;

 private:
  struct Destroy {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t exec) const { cudaGraphExecDestroy(exec); }
  };
  /// Work with its arguments, for as long as the graph may go without one.
  struct Single {
    explicit Single(const Work& w);
    Work work;
    std::unique_ptr<std::byte[]> arguments;
  };
  void must(cudaError_t status) const {
    if (status != cudaSuccess) must_(device_, status);
  }

  const cudaStream_t stream_;
  void* const device_;
  const Must must_;
  std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy> graph_;
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy> exec_;  ///< null: it has none
  std::vector<cudaGraphNode_t> nodes_;
  std::vector<Single> singly_;  ///< what goes instead
};

}  // namespace troupe::kernels::cuda
