#include "model/placement/expert_shares.h"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

using Shares = std::vector<std::vector<std::size_t>>;

Shares even(const ShareInput& input, std::size_t copies) {
  const std::size_t n = input.room.size();
  Shares shares(input.layers, std::vector<std::size_t>(n, copies / n));
  for (std::size_t layer = 0, next = 0; layer < input.layers; ++layer)
    for (std::size_t i = 0; i < copies % n; ++i) ++shares[layer][next++ % n];
  return shares;
}

/// All layers' copies of each device: one level for all, but for those that are full below it.
std::vector<std::uint64_t> levelled(std::vector<std::uint64_t> most, std::uint64_t copies) {
  std::vector<std::size_t> order(most.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return most[a] < most[b]; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t others = order.size() - i;
    std::uint64_t& share = most[order[i]];
    share = std::min(share, (copies + others - 1) / others);
    copies -= share;
  }
  return most;
}

/// The rest of each device's division by the layers goes to layers in turn: no device gets two of a
/// layer, and all layers get as many.
Shares by_layer(const std::vector<std::uint64_t>& totals, std::size_t layers) {
  Shares shares(layers, std::vector<std::size_t>(totals.size(), 0));
  std::size_t turn = 0;
  for (std::size_t d = 0; d < totals.size(); ++d) {
    for (auto& layer : shares) layer[d] = totals[d] / layers;
    for (std::uint64_t i = 0; i < totals[d] % layers; ++i) ++shares[turn++ % layers][d];
  }
  return shares;
}

}  // namespace

ExpertShares expert_shares(const ShareInput& input) {
  ExpertShares shares;
  if (input.layers == 0 || input.experts == 0) return shares;
  const auto useful = static_cast<std::size_t>(
      std::count_if(input.room.begin(), input.room.end(), [](auto room) { return room > 0; }));
  shares.copies =
      std::min(input.experts + input.redundant, input.experts * std::max<std::size_t>(useful, 1));
  const std::uint64_t all = static_cast<std::uint64_t>(shares.copies) * input.layers;
  std::vector<std::uint64_t> most;
  std::uint64_t room = 0;
  for (const std::uint64_t copies : input.room) {
    most.push_back(std::min<std::uint64_t>(copies, input.experts * input.layers));
    room += most.back();
  }
  if (room < all) {
    shares.lacking = all - room;
    return shares;
  }
  const std::size_t n = most.size();
  std::size_t fits = 0;
  for (std::size_t d = 0; d < n; ++d) fits += most[d] >= all / n + (d < all % n ? 1 : 0) ? 1 : 0;
  shares.of = fits == n ? even(input, shares.copies) : by_layer(levelled(most, all), input.layers);
  return shares;
}

}  // namespace troupe
