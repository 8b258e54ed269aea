#pragma once

#include "kernels/cuda/device.h"

/// The instructions of tensor cores and of copies that go on beside a thread, as PTX has them (its
/// ISA's "mma", "ldmatrix", "cp.async"; all GPUs since sm_80). Under nvcc they are those; for the
/// host cuda/twin/ptx.h says what they mean.
///
///     mma            c += a b of 16 x 16 by 16 x 8 numbers of bf16, in float32. Lane l brings rows
///                    l / 4 and l / 4 + 8 of a, column l / 4 of b: pairs of k 2 (l % 4) and + 8;
///                    it holds columns 2 (l % 4) and + 1 of both rows of c.
///     ldmatrix       four 8 x 8 matrices: lane l names row l % 8 of matrix l / 8, sixteen bytes,
///                    and gets, of each, the pair 2 (l % 4) of row l / 4
///     ldmatrix_trans the same, of the matrices turned
///     any            whether a lane says so
///     copy_later     sixteen bytes to shared memory (cp.async.cg), or zeros; a group ends with
///                    commit_copies, and wait_copies<n> is for all but the last n groups of the
///                    same thread: others see them behind a barrier
///
/// All 32 lanes of a warp come to the first four, at the same call.
#ifndef __CUDACC__
#include "kernels/cuda/twin/ptx.h"
#else
namespace troupe::kernels::cuda::ptx {

DEVICE void mma(Cta&, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                float (&c)[4]) {
  // A warp meets in it: it may be neither moved past a branch nor left out by some of the lanes.
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE unsigned shared_address(const Shared<Quad>& room, std::int64_t i) {
  return static_cast<unsigned>(__cvta_generic_to_shared(&room[i]));
}

DEVICE void ldmatrix(Cta&, const Shared<Quad>& room, std::int64_t i, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(room, i))
               : "memory");
}

DEVICE void ldmatrix_trans(Cta&, const Shared<Quad>& room, std::int64_t i, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(room, i))
               : "memory");
}

DEVICE bool any(Cta&, bool mine) { return __any_sync(0xffffffffu, mine) != 0; }

DEVICE void copy_later(Cta&, const Shared<Quad>& room, std::int64_t i, const void* from) {
  const int bytes = from != nullptr ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(room, i)), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

DEVICE void commit_copies(Cta&) { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
DEVICE void wait_copies(Cta&) {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace troupe::kernels::cuda::ptx
#endif
