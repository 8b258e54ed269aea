#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/bad_rows.h"
#include "kernels/chosen_mlp.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "kernels/embedding.h"
#include "kernels/gated_mlp.h"
#include "kernels/join.h"
#include "kernels/linear.h"
#include "kernels/moe_gate.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/sample.h"
#include "kernels/silu_mul.h"
#include "kernels/stream.h"
#include "runtime/result.h"

namespace troupe::kernels {

/// Which accelerator, and what of it.
struct AcceleratorOptions {
  int index = 0;                   ///< among those of its kind on this machine
  std::uint64_t memory_bytes = 0;  ///< that it may take for all that it is asked for
  ThreadPool* pool = nullptr;      ///< a twin computes on it; null: on the calling thread
  std::uint64_t seed = 0;  ///< of a twin: in which order threads run, and when the queue does
  std::size_t staging_bytes = Accelerator::kStagingBytes;
};

/// One kind of device: how it computes each op. A stream names its own, and the ops of the headers
/// beside this go through it; a program may hold several side by side.
///
/// What an op works on must be in memory that the device reaches: tensors, weights, pools of the
/// cache, tables of angles, biases, sinks, the ids and weights that a gate writes, and what lists
/// of pointers point at. What says what to do is the host's, and copied when an op is called: token
/// ids, positions, block tables, calls of experts, the lists of pointers themselves.
struct Backend {
  std::string_view name;  ///< "cpu", "cuda", "cuda_twin", for people

  decltype(kernels::attention)* attention;
  decltype(kernels::bad_rows)* bad_rows;
  decltype(kernels::chosen_mlp)* chosen_mlp;
  decltype(kernels::combine)* combine;
  decltype(kernels::combine_dense)* combine_dense;
  decltype(kernels::copy)* copy;
  decltype(kernels::embedding)* embedding;
  decltype(kernels::expert_mlp)* expert_mlp;
  decltype(kernels::from_wire)* from_wire;
  decltype(kernels::gated_mlp)* gated_mlp;
  decltype(kernels::join)* join;
  decltype(kernels::linear)* linear;
  decltype(kernels::moe_gate)* moe_gate;
  decltype(kernels::prepare)* prepare;
  decltype(kernels::residual_add)* residual_add;
  decltype(kernels::rms_norm)* rms_norm;
  decltype(kernels::rope)* rope;
  decltype(kernels::sample)* sample;
  decltype(kernels::silu_mul)* silu_mul;
  decltype(kernels::store_kv)* store_kv;
  decltype(kernels::to_wire)* to_wire;

  /// Memory that both the ops and the host can reach, not cleared, on a boundary of 64 bytes. For
  /// streams without an accelerator, whose ops have ended when they return. Throws std::bad_alloc.
  std::shared_ptr<std::byte> (*memory)(std::size_t bytes);
  /// What a stream without an accelerator keeps of its device from op to op; null: nothing.
  std::shared_ptr<void> (*open)(const Stream::Options& options) = nullptr;
  bool reaches_host = true;  ///< all of the host's memory, not only what memory() gives
  /// A device with memory of its own; null: there are none of this kind.
  std::function<Result<std::shared_ptr<Accelerator>>(const AcceleratorOptions& options)>
      accelerator = nullptr;
};

/// All exact numerics, by the families of processors (runtime/cpu_family.h).
const Backend& cpu_backend();
/// `bf16` and `cuda_mma` on an NVIDIA GPU; null where it is not built, or no GPU is found.
const Backend* cuda_backend();

}  // namespace troupe::kernels
