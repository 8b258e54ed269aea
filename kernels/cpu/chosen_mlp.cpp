#include "kernels/chosen_mlp.h"

#include <algorithm>

#include "kernels/cpu/ops.h"

namespace troupe::kernels {

/// A counting sort, then expert_mlp().
void cpu::chosen_mlp(Stream& stream, const ExpertTable& table, GatedAct act, std::int32_t per_row,
                     std::span<const ChosenRows> pieces, std::int32_t pairs_at_once) {
  const std::size_t row_bytes = static_cast<std::size_t>(table.experts[0]->gate.k()) *
                                dtype_size(wire_type(stream.numerics()));
  std::vector<std::int32_t> ends(table.experts.size() + 1);  // first, where an expert's pairs begin
  for (const ChosenRows& piece : pieces)
    for (std::int32_t i = 0; i < piece.count * per_row; ++i)
      ++ends[static_cast<std::size_t>(piece.ids[i]) + 1];
  const auto chosen = static_cast<std::int32_t>(
      std::count_if(ends.begin(), ends.end(), [](std::int32_t pairs) { return pairs > 0; }));
  for (std::size_t e = 1; e < ends.size(); ++e) ends[e] += ends[e - 1];
  const auto pairs = static_cast<std::size_t>(ends.back());
  std::vector<const std::byte*> rows(pairs);
  std::vector<std::byte*> outputs(pairs);
  for (const ChosenRows& piece : pieces)
    for (std::int32_t i = 0; i < piece.count * per_row; ++i) {
      const auto to = static_cast<std::size_t>(ends[static_cast<std::size_t>(piece.ids[i])]++);
      rows[to] = piece.rows + static_cast<std::size_t>(i / per_row) * row_bytes;
      outputs[to] = piece.outputs + static_cast<std::size_t>(i) * row_bytes;
    }
  const auto end = static_cast<std::int32_t>(pairs);
  for (std::int32_t first = 0; first < end; first += pairs_at_once) {
    const std::int32_t last = std::min(end, first + pairs_at_once);
    std::vector<ExpertCall> calls;
    std::int32_t at = 0;
    for (std::size_t e = 0; e < table.experts.size(); ++e) {
      const std::int32_t from = std::max(at, first), to = std::min(ends[e], last);
      if (from < to) calls.push_back({table.experts[e], from - first, to - from});
      at = ends[e];
    }
    cpu::expert_mlp(stream, calls, act, rows.data() + first, outputs.data() + first);
  }
  for (const ChosenRows& piece : pieces) *piece.experts_read = &piece == pieces.data() ? chosen : 0;
}

}  // namespace troupe::kernels
