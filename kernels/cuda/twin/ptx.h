#pragma once

#include "kernels/cuda/twin/cta.h"

/// What the instructions of kernels/cuda/ptx.h mean, as the twin has them.
namespace troupe::kernels::cuda_twin::ptx {

/// What a lane brings to an mma, and takes away.
struct MmaLane {
  const std::uint32_t* a;  ///< [4]
  std::uint32_t b[2];
  float* c;  ///< [4]
};
/// What a lane brings to an ldmatrix, and takes away.
struct MatrixLane {
  const std::byte* row;
  std::uint32_t* to;  ///< [4]
};

/// What an mma multiplies: rows of a, columns of b beside each other.
struct MmaOperands {
  double a[16][16], b[16][8];
};
/// c += a b, added as `order` has it.
void add_products(MmaOrder order, const MmaOperands& with, float (&c)[16][8]);

void mma_of_warp(Machine& machine, void* const* lanes);
void ldmatrix_of_warp(Machine& machine, void* const* lanes);
void ldmatrix_trans_of_warp(Machine& machine, void* const* lanes);
void any_of_warp(Machine& machine, void* const* lanes);  ///< bools

inline void mma(Cta& cta, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                float (&c)[4], const Site& site = Site::current()) {
  MmaLane lane = {a, {b0, b1}, c};
  cta.machine().together(mma_of_warp, &lane, site);
}

inline void ldmatrix(Cta& cta, const Shared<Quad>& room, std::int64_t i, std::uint32_t (&to)[4],
                     const Site& site = Site::current()) {
  MatrixLane lane = {room.address(i), to};
  cta.machine().together(ldmatrix_of_warp, &lane, site);
}

inline void ldmatrix_trans(Cta& cta, const Shared<Quad>& room, std::int64_t i,
                           std::uint32_t (&to)[4], const Site& site = Site::current()) {
  MatrixLane lane = {room.address(i), to};
  cta.machine().together(ldmatrix_trans_of_warp, &lane, site);
}

inline bool any(Cta& cta, bool mine, const Site& site = Site::current()) {
  cta.machine().together(any_of_warp, &mine, site);
  return mine;
}

inline void copy_later(Cta& cta, const Shared<Quad>& room, std::int64_t i, const void* from) {
  cta.machine().copy_later(room.address(i), static_cast<const std::byte*>(from));
}
inline void commit_copies(Cta& cta) { cta.machine().commit_copies(); }
template <int kPending>
void wait_copies(Cta& cta) {
  cta.machine().wait_copies(kPending);
}

}  // namespace troupe::kernels::cuda_twin::ptx
