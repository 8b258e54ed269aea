#include "kernels/cuda/twin/traffic.h"

#include <algorithm>
#include <set>

namespace troupe::kernels::cuda_twin {
namespace {

constexpr int kWarpLanes = 32;
constexpr std::uintptr_t kSectorBytes = 32, kBanks = 32;

}  // namespace

void Traffic::note(Kind kind, int thread, std::uint32_t line, std::uintptr_t at,
                   std::size_t bytes) {
  const std::size_t n = counts_[{kind, line, thread}]++;
  auto& of_warp = pending_[{kind, line, thread / kWarpLanes}];
  if (of_warp.size() <= n) of_warp.resize(n + 1);
  of_warp[n].push_back({thread % kWarpLanes, at, bytes});
}

void Traffic::settle() {
  for (const auto& [place, instructions] : pending_) {
    const Kind kind = std::get<0>(place);
    Total& total = totals_[{kind, std::get<1>(place)}];
    for (const std::vector<Access>& lanes : instructions) {
      ++total.instructions;
      total.units += kind == Kind::kLoad ? sectors(lanes) : passes(lanes, false);
      total.least += kind == Kind::kLoad ? least_sectors(lanes) : passes(lanes, true);
    }
  }
  pending_.clear();
  counts_.clear();
}

std::int64_t Traffic::sectors(const std::vector<Access>& lanes) {
  std::set<std::uintptr_t> touched;
  for (const Access& a : lanes)
    for (std::uintptr_t s = a.at / kSectorBytes; s <= (a.at + a.bytes - 1) / kSectorBytes; ++s)
      touched.insert(s);
  return static_cast<std::int64_t>(touched.size());
}

std::int64_t Traffic::least_sectors(const std::vector<Access>& lanes) {
  std::set<std::uintptr_t> different;
  std::size_t bytes = 0;
  for (const Access& a : lanes)
    if (different.insert(a.at).second) bytes += a.bytes;
  return static_cast<std::int64_t>((bytes + kSectorBytes - 1) / kSectorBytes);
}

/// Lanes go together as long as they have 32 words; of a bank they get one word at a time.
/// `any_bank`: as if no two words were in one bank.
std::int64_t Traffic::passes(const std::vector<Access>& lanes, bool any_bank) {
  std::int64_t all = 0;
  std::map<int, std::set<std::uintptr_t>> words_of_group;
  for (const Access& a : lanes) {
    const int at_once = static_cast<int>(kWarpLanes * 4 / std::max<std::size_t>(a.bytes, 4));
    for (std::uintptr_t w = a.at / 4; w < (a.at + a.bytes + 3) / 4; ++w)
      words_of_group[a.lane / at_once].insert(w);
  }
  for (const auto& [group, words] : words_of_group) {
    if (any_bank) {
      all += static_cast<std::int64_t>((words.size() + kBanks - 1) / kBanks);
      continue;
    }
    std::int64_t of_bank[kBanks] = {};
    for (const std::uintptr_t w : words) ++of_bank[w % kBanks];
    all += *std::max_element(std::begin(of_bank), std::end(of_bank));
  }
  return all;
}

}  // namespace troupe::kernels::cuda_twin
