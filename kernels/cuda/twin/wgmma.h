#pragma once

#include <vector>

#include "kernels/cuda/twin/ptx.h"

/// What the instructions of kernels/cuda/wgmma.h mean, as the twin has them.
namespace troupe::kernels::cuda_twin {

/// What four warps' tensor cores have been given. An mma reads its matrices at any moment up to the
/// wait for it; its sums are poison until then.
class TensorWork {
 public:
  /// Of a lane: what an mma multiplies, and its numbers of the sum.
  struct Lane {
    const std::uint32_t* held;  ///< of a, [4], or null: a is in shared memory
    std::uint64_t a, b;         ///< matrices
    bool by_rows;               ///< b's columns are rows in memory
    float* c;
    int count;
  };
  /// All lanes are at an mma.
  void give(Machine& machine, void* const* lanes);
  void commit(Machine& machine);
  /// All but the last `pending` groups are done, and their sums are the threads' again.
  void wait(Machine& machine, int pending);
  void fence() { fenced_ = true; }
  bool idle() const { return given_.empty(); }

 private:
  struct Sum {
    std::vector<float*> lanes;   ///< where the threads have it
    std::vector<float> numbers;  ///< [lane][count]
    int count;
  };
  struct Given {
    std::vector<std::uint32_t> held;  ///< [lane][4], or nothing
    std::uint64_t a, b;
    bool by_rows, done;
    int group;
    std::size_t sum;
  };
  std::size_t sum_of(void* const* lanes);
  void compute(Machine& machine, Given& given);

  std::vector<Sum> sums_;
  std::vector<Given> given_;
  int group_ = 0;  ///< of what comes next
  bool fenced_ = false;
};

namespace ptx {

using SharedMatrix = std::uint64_t;

/// Places are told apart by `site`.
template <int kThreads>
void meet(Cta& cta, const Site& site = Site::current()) {
  cta.sync(site);
}
inline void stream_later(Cta& cta, const Shared<Quad>& room, std::int64_t i, const void* from) {
  copy_later(cta, room, i, from);
}

inline SharedMatrix shared_matrix(Cta& cta, const Shared<Quad>& room, std::int64_t i, int apart) {
  constexpr std::uint64_t kEightRows = 1024 >> 4, kSwizzled128 = 1;
  return cta.machine().place_of(room.address(i)) >> 4 |
         static_cast<std::uint64_t>(apart >> 4) << 16 | kEightRows << 32 | kSwizzled128 << 62;
}
inline SharedMatrix moved_by(SharedMatrix matrix, int bytes) {
  return matrix + static_cast<std::uint64_t>(bytes >> 4);
}

void wgmma_of_group(Machine& machine, void* const* lanes);         ///< TensorWork::Lane
void wgmma_fence_of_group(Machine& machine, void* const* lanes);   ///< nothing
void wgmma_commit_of_group(Machine& machine, void* const* lanes);  ///< nothing
void wgmma_wait_of_group(Machine& machine, void* const* lanes);    ///< an int: pending

constexpr int kGroupLanes = 128;

inline void wgmma_by_rows(Cta& cta, SharedMatrix a, SharedMatrix b, float (&c)[16],
                          const Site& site = Site::current()) {
  TensorWork::Lane lane = {nullptr, a, b, true, c, 16};
  cta.machine().together(wgmma_of_group, &lane, site, kGroupLanes);
}
inline void wgmma_by_rows(Cta& cta, const std::uint32_t (&a)[4], SharedMatrix b, float (&c)[16],
                          const Site& site = Site::current()) {
  TensorWork::Lane lane = {a, 0, b, true, c, 16};
  cta.machine().together(wgmma_of_group, &lane, site, kGroupLanes);
}
inline void wgmma_by_columns(Cta& cta, SharedMatrix a, SharedMatrix b, float (&c)[128],
                             const Site& site = Site::current()) {
  TensorWork::Lane lane = {nullptr, a, b, false, c, 128};
  cta.machine().together(wgmma_of_group, &lane, site, kGroupLanes);
}
inline void wgmma_fence(Cta& cta, const Site& site = Site::current()) {
  cta.machine().together(wgmma_fence_of_group, nullptr, site, kGroupLanes);
}
inline void wgmma_commit(Cta& cta, const Site& site = Site::current()) {
  cta.machine().together(wgmma_commit_of_group, nullptr, site, kGroupLanes);
}
template <int kPending, int kCount>
void wgmma_wait(Cta& cta, float (&)[kCount], const Site& site = Site::current()) {
  int pending = kPending;
  cta.machine().together(wgmma_wait_of_group, &pending, site, kGroupLanes);
}
/// A fiber has what it needs.
template <int kRegisters>
void take_registers(Cta&) {}
template <int kRegisters>
void leave_registers(Cta&) {}
inline void fence_copies(Cta& cta) { cta.machine().fence_copies(); }

}  // namespace ptx
}  // namespace troupe::kernels::cuda_twin
