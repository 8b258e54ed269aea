#include "kernels/backend.h"

#include "kernels/cpu/ops.h"
#include "runtime/buffer.h"

namespace troupe::kernels {
namespace {

std::shared_ptr<std::byte> host_memory(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>(Buffer::uninitialized(bytes));
  std::byte* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace

const Backend& cpu_backend() {
  static const Backend kBackend = {
      .name = "cpu",
      .attention = cpu::attention,
      .bad_rows = cpu::bad_rows,
      .chosen_mlp = cpu::chosen_mlp,
      .combine = cpu::combine,
      .combine_dense = cpu::combine_dense,
      .copy = cpu::copy,
      .embedding = cpu::embedding,
      .expert_mlp = cpu::expert_mlp,
      .from_wire = cpu::from_wire,
      .gated_mlp = cpu::gated_mlp,
      .join = cpu::join,
      .linear = cpu::linear,
      .moe_gate = cpu::moe_gate,
      .prepare = cpu::prepare,
      .residual_add = cpu::residual_add,
      .rms_norm = cpu::rms_norm,
      .rope = cpu::rope,
      .sample = cpu::sample,
      .silu_mul = cpu::silu_mul,
      .store_kv = cpu::store_kv,
      .to_wire = cpu::to_wire,
      .memory = host_memory,
  };
  return kBackend;
}

}  // namespace troupe::kernels
