#include "kernels/mla_attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/fault.h"
#include "kernels/cpu/mla_heads.h"
#include "kernels/cpu/parallel.h"
#include "runtime/bf16.h"

namespace troupe::kernels {
namespace {

std::byte* slot(const LatentCache& cache, const std::int32_t* table, std::int32_t position) {
  const auto p = static_cast<std::size_t>(position);
  const auto block = static_cast<std::size_t>(table[p / cache.block_size]);
  return static_cast<std::byte*>(cache.base) +
         (block * cache.block_size + p % cache.block_size) * cache.slot_bytes();
}

std::byte* put(WireType type, const float* from, std::size_t n, std::byte* to) {
  if (type == WireType::kF32) {
    std::memcpy(to, from, n * sizeof(float));
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const Bf16 rounded = to_bf16(from[i]);
      std::memcpy(to + i * sizeof(Bf16), &rounded, sizeof rounded);
    }
  }
  return to + n * wire_size(type);
}

using MlaKernel = void (*)(const cpu::MlaHeads&);

MlaKernel mla_kernel(Numerics numerics) {
  switch (numerics) {
    case Numerics::kReference: return cpu::mla_heads_reference;
    case Numerics::kAvx2: return cpu::mla_heads_avx2;
    case Numerics::kAvx512Bf16:
    case Numerics::kAmxBf16: break;
  }
  return cpu::mla_heads_avx512_bf16;
}

}  // namespace

void store_latent(const Context&, const LatentCache& cache, const PagedRows& where,
                  ConstRows latent, ConstRows rope) {
  assert(latent.cols == cache.kv_lora && rope.cols == cache.rope && latent.rows == rope.rows);
  for (std::size_t r = 0; r < latent.rows; ++r) {
    std::byte* at = slot(cache, where.tables[r], where.positions[r]);
    at = put(cache.type, latent.row(r), cache.kv_lora, at);
    put(cache.type, rope.row(r), cache.rope, at);
  }
}

void mla_attention(const Context& ctx, const LatentCache& cache, const PagedRows& where,
                   const MlaQueries& q, Heads out) {
  assert(q.latent.rows == out.rows && q.rope.rows == out.rows);
  assert(q.latent.heads == out.heads && q.rope.heads == out.heads);
  assert(q.latent.dim == cache.kv_lora && out.dim == cache.kv_lora && q.rope.dim == cache.rope);
  assert(cache.type == wire_type(ctx.numerics));
  const MlaKernel kernel = mla_kernel(ctx.numerics);

  double positions = 0;
  for (std::size_t r = 0; r < out.rows; ++r) positions += where.positions[r] + 1;
  const double macs = positions * static_cast<double>(out.heads * (2 * cache.kv_lora + cache.rope));
  const double work_ns = macs / (ctx.numerics == Numerics::kReference ? 4 : 16);

  Scratch::Scope scope(*ctx.scratch);
  const std::size_t room = cpu::mla_room_bytes(cache.kv_lora, cache.rope);
  const int threads = worthwhile_threads(ctx, work_ns);
  auto* rooms = ctx.scratch->take<std::byte>(room * static_cast<std::size_t>(threads));
  // The heads of a group share each pass over the context; a group never influences its heads.
  const std::size_t groups = (out.heads + cpu::kMlaHeads - 1) / cpu::kMlaHeads;
  const auto task = [&](int thread, std::size_t i) {
    const std::size_t r = i / groups, head = i % groups * cpu::kMlaHeads;
    cpu::MlaHeads h;
    h.cache = cache.base;
    h.slot_bytes = cache.slot_bytes();
    h.block_size = cache.block_size;
    h.table = where.tables[r];
    h.position = where.positions[r];
    h.kv_lora = cache.kv_lora;
    h.rope = cache.rope;
    h.heads = std::min(cpu::kMlaHeads, out.heads - head);
    h.latent = q.latent.at(r, head);
    h.latent_stride = q.latent.head_stride;
    h.rotary = q.rope.at(r, head);
    h.rotary_stride = q.rope.head_stride;
    h.scale = q.scale;
    h.out = out.at(r, head);
    h.out_stride = out.head_stride;
    h.room = rooms + room * static_cast<std::size_t>(thread);
    kernel(h);
  };
  const std::size_t tasks = out.rows * groups;
  if (ctx.pool == nullptr || work_ns < kParallelAboveNs)
    for (std::size_t i = 0; i < tasks; ++i) task(0, i);
  else
    ctx.pool->parallel_for(tasks, task);
  apply_fault(ctx, "mla_attention", out.data);
}

}  // namespace troupe::kernels
