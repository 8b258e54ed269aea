#include "kernels/cuda/gpu_work.h"

#include <cstring>

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

GpuGraph::Single::Single(const Work& w) : work(w) {
  if (w.kind != Work::Kind::kKernel) return;
  arguments = std::make_unique_for_overwrite<std::byte[]>(w.bytes);
  std::memcpy(arguments.get(), w.from, w.bytes);
  work.from = arguments.get();
}

GpuGraph::GpuGraph(std::span<const Work> batch, cudaStream_t stream, void* device, Must must)
    : stream_(stream), device_(device), must_(must) {
  cudaGraph_t graph = nullptr;
  this->must(cudaGraphCreate(&graph, 0));
  graph_.reset(graph);
  for (const Work& work : batch) {
    cudaGraphNode_t node = nullptr;
    const cudaGraphNode_t* before = nodes_.empty() ? nullptr : &nodes_.back();
    const std::size_t befores = nodes_.empty() ? 0 : 1;
    if (work.kind == Work::Kind::kKernel) {
      this->must(widen(work));
      this->must(cudaGraphAddKernelNode(&node, graph, before, befores, Node(work).params()));
    } else {
      this->must(cudaGraphAddMemcpyNode1D(&node, graph, before, befores, work.to, work.from,
                                          work.bytes, kind_of(work)));
    }
    nodes_.push_back(node);
  }
  cudaGraphExec_t exec = nullptr;
  cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  exec_.reset(exec);
  // What a launch needs it would take at the first one, where it is too late to do without.
  if (made == cudaSuccess) made = cudaGraphUpload(exec, stream);
  if (made == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // else it is found by whoever asks next
    exec_ = nullptr;
    for (const Work& work : batch) singly_.emplace_back(work);
  } else {
    this->must(made);
  }
}

void GpuGraph::change(std::size_t at, const Work& work) {
  if (exec_ == nullptr) {
    singly_[at] = Single(work);
    return;
  }
  must(work.kind == Work::Kind::kKernel
           ? cudaGraphExecKernelNodeSetParams(exec_.get(), nodes_[at], Node(work).params())
           : cudaGraphExecMemcpyNodeSetParams1D(exec_.get(), nodes_[at], work.to, work.from,
                                                work.bytes, kind_of(work)));
}

void GpuGraph::launch() {
  if (exec_ != nullptr) return must(cudaGraphLaunch(exec_.get(), stream_));
  for (const Single& single : singly_) must(submit(single.work, stream_));
}

}  // namespace troupe::kernels::cuda
