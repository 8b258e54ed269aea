#include "kernels/cuda/gpu_work.h"

#include <vector>

namespace troupe::kernels::cuda {
namespace {

dim3 dim_of(Grid grid) {
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
}

cudaMemcpyKind kind_of(const Work& copy) {
  return copy.kind == Work::Kind::kCopyIn ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
}

/// More shared memory than there is without asking has to be asked for.
cudaError_t widen(const Work& kernel) {
  if (kernel.shared_bytes == 0) return cudaSuccess;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kernel.shared_bytes));
}

/// A kernel has one argument: itself.
class Node {
 public:
  explicit Node(const Work& kernel) : argument_(const_cast<void*>(kernel.from)) {
    params_.func = const_cast<void*>(kernel.function);
    params_.gridDim = dim_of(kernel.grid);
    params_.blockDim = dim3(static_cast<unsigned>(kernel.threads));
    params_.sharedMemBytes = static_cast<unsigned>(kernel.shared_bytes);
    params_.kernelParams = &argument_;
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const cudaKernelNodeParams* params() const { return &params_; }

 private:
  void* argument_;
  cudaKernelNodeParams params_{};
};

}  // namespace

cudaError_t submit(const Work& work, cudaStream_t stream) {
  if (work.kind != Work::Kind::kKernel)
    return cudaMemcpyAsync(work.to, work.from, work.bytes, kind_of(work), stream);
  if (const cudaError_t widened = widen(work); widened != cudaSuccess) return widened;
  void* argument = const_cast<void*>(work.from);
  return cudaLaunchKernel(work.function, dim_of(work.grid),
                          dim3(static_cast<unsigned>(work.threads)), &argument, work.shared_bytes,
                          stream);
}

GpuGraph::GpuGraph(std::span<const Work> batch, cudaStream_t stream, void* device, Must must)
    : stream_(stream), device_(device), must_(must) {
  this->must(cudaGraphCreate(&graph_, 0));
  for (const Work& work : batch) {
    cudaGraphNode_t node = nullptr;
    const cudaGraphNode_t* before = nodes_.empty() ? nullptr : &nodes_.back();
    const std::size_t befores = nodes_.empty() ? 0 : 1;
    if (work.kind == Work::Kind::kKernel) {
      this->must(widen(work));
      this->must(cudaGraphAddKernelNode(&node, graph_, before, befores, Node(work).params()));
    } else {
      this->must(cudaGraphAddMemcpyNode1D(&node, graph_, before, befores, work.to, work.from,
                                          work.bytes, kind_of(work)));
    }
    nodes_.push_back(node);
  }
  this->must(cudaGraphInstantiate(&exec_, graph_, 0));
}

GpuGraph::~GpuGraph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  if (graph_ != nullptr) cudaGraphDestroy(graph_);
}

void GpuGraph::change(std::size_t at, const Work& work) {
  must(work.kind == Work::Kind::kKernel
           ? cudaGraphExecKernelNodeSetParams(exec_, nodes_[at], Node(work).params())
           : cudaGraphExecMemcpyNodeSetParams1D(exec_, nodes_[at], work.to, work.from, work.bytes,
                                                kind_of(work)));
}

void GpuGraph::launch() { must(cudaGraphLaunch(exec_, stream_)); }

}  // namespace troupe::kernels::cuda
