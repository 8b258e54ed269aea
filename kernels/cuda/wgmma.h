#pragma once

#include "kernels/cuda/ptx.h"

/// The instructions by which tensor cores read shared memory themselves (PTX's "wgmma"; sm_90a
/// alone). Under nvcc they are those; for the host cuda/twin/wgmma.h says what they mean.
///
/// A *matrix* lies in shared memory as rows of 128 bytes, eight of them in each 1,024 bytes from a
/// multiple of 1,024 on; the sixteen bytes c of row r stand at c ^ r % 8. What is wider than 64
/// numbers of bf16 is several such blocks, `apart` bytes from each other.
///
///     shared_matrix    names one, from a row that is a multiple of eight on; moved_by() names what
///                      lies some bytes behind: k 16 further is 32 bytes in a row, or 16 rows
///     wgmma_by_rows    c += a b of 64 x 16 by 16 x 32 numbers; b's columns are rows in memory. A
///                      warp's sixteen rows of a may be in registers, as an mma takes them
///     wgmma_by_columns c += a b of 64 x 16 by 16 x 256; b's rows are rows in memory, in 4 blocks
///     wgmma_fence      before the first of them, and whenever registers of c were written
///     wgmma_commit     ends a group; wgmma_wait<n>(c) is for all but the last n groups: until then
///                      c is nobody's, and a and b stay as they are
///     fence_copies     what the thread wrote or copied to shared memory is seen by them, behind a
///                      barrier
///     leave_registers  from now on the group has no more than that many of a thread, and another
///     take_registers   as many more as were left (PTX's "setmaxnreg")
///
/// Four warps, the first of which is a multiple of four, come to all but the last together. The
/// sums are those of sixteens of `ptx::mma` to the bit, as an H100 does them: warp w has rows 16 w
/// to 16 w + 15 of c, and each eight columns are a lane's four of an mma.
#ifndef __CUDACC__
#include "kernels/cuda/twin/wgmma.h"
#else
namespace troupe::kernels::cuda::ptx {

/// Where all threads of a CTA meet, each group of warps at its place in the code: PTX lets them,
/// though compute-sanitizer's synccheck calls it divergent.
template <int kThreads>
DEVICE void meet(Cta&) {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

/// copy_later of what the second level cache is to let go first.
DEVICE void stream_later(Cta&, const Shared<Quad>& room, std::int64_t i, const void* from) {
  const int bytes = from != nullptr ? 16 : 0;
  std::uint64_t policy;  // the same for all that a thread copies: nvcc makes it once
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                   shared_address(room, i)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "l"(policy)
               : "memory");
}

/// Where a matrix lies, as the instructions have it (PTX's "matrix descriptor").
using SharedMatrix = std::uint64_t;

DEVICE SharedMatrix shared_matrix(Cta&, const Shared<Quad>& room, std::int64_t i, int apart) {
  constexpr std::uint64_t kEightRows = 1024 >> 4, kSwizzled128 = 1;
  return std::uint64_t{(shared_address(room, i) & 0x3ffffu) >> 4} |
         static_cast<std::uint64_t>(apart >> 4) << 16 | kEightRows << 32 | kSwizzled128 << 62;
}
DEVICE SharedMatrix moved_by(SharedMatrix matrix, int bytes) {
  return matrix + static_cast<std::uint64_t>(bytes >> 4);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TROUPE_EIGHT(i)                                                                       \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
DEVICE void wgmma_by_rows(Cta&, SharedMatrix a, SharedMatrix b, float (&c)[16]) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, "
      "%16, %17, 1, 1, 1, 0, 0;"
      : TROUPE_EIGHT(0), TROUPE_EIGHT(8)
      : "l"(a), "l"(b));
}
DEVICE void wgmma_by_rows(Cta&, const std::uint32_t (&a)[4], SharedMatrix b, float (&c)[16]) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, "
      "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : TROUPE_EIGHT(0), TROUPE_EIGHT(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma_by_columns(Cta&, SharedMatrix a, SharedMatrix b, float (&c)[128]) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
      "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
      "%126, %127}, "
      "%128, %129, 1, 1, 1, 0, 1;"
      : TROUPE_EIGHT(0), TROUPE_EIGHT(8), TROUPE_EIGHT(16), TROUPE_EIGHT(24), TROUPE_EIGHT(32),
        TROUPE_EIGHT(40), TROUPE_EIGHT(48), TROUPE_EIGHT(56), TROUPE_EIGHT(64), TROUPE_EIGHT(72),
        TROUPE_EIGHT(80), TROUPE_EIGHT(88), TROUPE_EIGHT(96), TROUPE_EIGHT(104), TROUPE_EIGHT(112),
        TROUPE_EIGHT(120)
      : "l"(a), "l"(b));
}
#undef TROUPE_EIGHT
DEVICE void wgmma_fence(Cta&) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit(Cta&) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending, int kCount>
DEVICE void wgmma_wait(Cta&, float (&c)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");  // not read before
}
template <int kRegisters>
DEVICE void take_registers(Cta&) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
DEVICE void leave_registers(Cta&) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
DEVICE void fence_copies(Cta&) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
// Kernels with these have no code elsewhere (gpu.h).
DEVICE void wgmma_by_rows(Cta&, SharedMatrix, SharedMatrix, float (&)[16]) { __trap(); }
DEVICE void wgmma_by_rows(Cta&, const std::uint32_t (&)[4], SharedMatrix, float (&)[16]) {
  __trap();
}
DEVICE void wgmma_by_columns(Cta&, SharedMatrix, SharedMatrix, float (&)[128]) { __trap(); }
DEVICE void wgmma_fence(Cta&) {}
DEVICE void wgmma_commit(Cta&) {}
template <int kPending, int kCount>
DEVICE void wgmma_wait(Cta&, float (&)[kCount]) {}
DEVICE void fence_copies(Cta&) {}
template <int kRegisters>
DEVICE void take_registers(Cta&) {}
template <int kRegisters>
DEVICE void leave_registers(Cta&) {}
#endif

}  // namespace troupe::kernels::cuda::ptx
#endif
