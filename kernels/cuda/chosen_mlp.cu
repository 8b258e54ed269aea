#include "kernels/chosen_mlp.h"

#include <cassert>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

/// Experts that the device chose. The host knows how many pairs of a row and an expert there are,
/// not whose they are: it asks for as many CTAs as there could be items, and those beyond what the
/// sort has listed return at once.
///
///     ids ──► sort ──► rows, outputs by expert; items of both products; how many
///     rows ──► prepare ──► gate and up ──► act and prepare ──► down ──► outputs
namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

using Multiply = void(Stream&, const Products&);

/// Numbers of a pass of `at_once` pairs, on the device.
struct PassItems {
  std::int32_t gate_and_up = 0, down = 0;
};

/// A counting sort. A CTA a pass, which counts all pairs and places those of its pass. Each warp
/// has a run of rows: all warps do a row, then the next, so that the experts of a warp's row, which
/// differ, are counted side by side. Bytes: a pair's id twice, 16 written. Operations of a CTA: two
/// counts for each pair, an addition for each expert and warp. Bound by the latency of a row's
/// counters. What the products move and compute is said where they are.
struct SortChosen {
  static constexpr int kThreads = 512, kWarps = kThreads / 32;
  static constexpr std::size_t kSharedBytes = kWarps * sizeof(std::int32_t);
  static constexpr bool kMeets = true;

  const ChosenRows* pieces;
  std::int64_t rows, row_bytes;
  std::int32_t experts, per_row;
  std::int32_t at_once, item_rows;  ///< pairs of a pass, rows of an item
  const ExpertPlace* places;
  std::int32_t* counters;  ///< [passes, warps + 1, experts]
  const std::byte** from;  ///< [pairs]
  std::byte** to;          ///< [pairs]
  // Of each pass:
  ProductItem* items;  ///< [passes, 3 * items_max] of gate and up, then of down
  std::int64_t items_max;
  PassItems* listed;  ///< [passes]
  // Used by one pass after the other:
  PreparedRows in, middle;
  std::byte* halves;
  std::int64_t halves_bytes;  ///< of a row: the gate's half, then up's

  DEVICE void operator()(Cta& cta) const {
    std::int32_t* counts = counters + cta.block_x() * (kWarps + 1) * experts;
    std::int32_t* begins = counts + kWarps * std::int64_t{experts};
    for (std::int64_t i = cta.thread(); i < kWarps * std::int64_t{experts}; i += kThreads)
      counts[i] = 0;
    cta.sync();
    each_pair(
        cta, [&](const ChosenRows&, std::int64_t, std::int32_t, std::int32_t* count) { ++*count; },
        counts);
    place_experts(cta, counts, begins);
    const std::int64_t first = cta.block_x() * at_once, last = first + at_once;
    each_pair(
        cta,
        [&](const ChosenRows& piece, std::int64_t row, std::int32_t slot, std::int32_t* count) {
          const std::int64_t pair = row * per_row + slot;
          const std::int64_t at = begins[piece.ids[pair]] + std::int64_t{(*count)++};
          if (at < first || at >= last) return;
          from[at] = piece.rows + row * row_bytes;
          to[at] = piece.outputs + pair * row_bytes;
        },
        counts);
  }

  /// body(piece, its row, slot, the warp's counter of the expert).
  template <class Body>
  DEVICE void each_pair(Cta& cta, const Body& body, std::int32_t* counts) const {
    const std::int64_t run = ceil_div(rows, kWarps);
    const ChosenRows* piece = pieces;
    std::int64_t row = cta.warp() * run;
    const std::int64_t end = row + run < rows ? row + run : rows;
    std::int64_t before = 0;  // rows of the pieces before this one
#pragma unroll 1
    for (std::int64_t i = 0; i < run; ++i, ++row) {
      if (row < end) {
        for (; row - before >= piece->count; ++piece) before += piece->count;
        const std::int32_t* ids = piece->ids + (row - before) * per_row;
        for (std::int32_t slot = cta.lane(); slot < per_row; slot += 32)
          body(*piece, row - before, slot, counts + cta.warp() * std::int64_t{experts} + ids[slot]);
      }
      cta.sync();
    }
  }

  /// Where each expert's pairs begin, and in them each warp's; the items of the pass.
  DEVICE void place_experts(Cta& cta, std::int32_t* counts, std::int32_t* begins) const {
    const std::int32_t mine = static_cast<std::int32_t>(ceil_div(experts, kThreads));
    const std::int32_t first = cta.thread() * mine;
    const std::int32_t end = first + mine < experts ? first + mine : experts;
    std::int32_t pairs = 0, chosen = 0;
    for (std::int32_t e = first; e < end; ++e) {
      std::int32_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) {
        std::int32_t& count = counts[warp * std::int64_t{experts} + e];
        const std::int32_t before = sum;
        sum += count;
        count = before;
      }
      begins[e] = sum;  // for now
      pairs += sum;
      chosen += sum > 0 ? 1 : 0;
    }
    std::int32_t all = 0;
    std::int32_t at = sum_before(cta, pairs, all);
    std::int32_t found = 0;
    for (std::int32_t e = first; e < end; ++e) {
      const std::int32_t count = begins[e];
      begins[e] = at;
      found += items_of(cta, at, at + count).count;
      at += count;
    }
    const std::int32_t own_end = at;
    std::int32_t item = sum_before(cta, found, all);
    if (cta.thread() == 0) listed[cta.block_x()] = {2 * all, all};
    for (std::int32_t e = first; e < end; ++e)
      item = list(cta, e, begins[e], e + 1 < end ? begins[e + 1] : own_end, item);
    sum_before(cta, chosen, all);
    if (cta.block_x() != 0 || cta.thread() != 0) return;
    std::int64_t left = rows;
    for (const ChosenRows* piece = pieces; left > 0; left -= piece++->count)
      *piece->experts_read = piece == pieces ? all : 0;
  }

  /// Of the values of all threads; `all` becomes the sum of them.
  DEVICE std::int32_t sum_before(Cta& cta, std::int32_t value, std::int32_t& all) const {
    const Shared<std::int32_t> of_warps = cta.shared<std::int32_t>(0, kWarps);
    std::int32_t sum = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int lower = cta.lane() < distance ? cta.lane() : cta.lane() - distance;
      const std::int32_t other = cta.shuffle(~std::uint32_t{0}, sum, lower);
      if (cta.lane() >= distance) sum += other;
    }
    cta.sync();  // they may still be read
    if (cta.lane() == 31) of_warps[cta.warp()] = sum;
    cta.sync();
    std::int32_t before = sum - value;
    all = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      const std::int32_t other = of_warps[warp];
      if (warp < cta.warp()) before += other;
      all += other;
    }
    return before;
  }

  struct Items {
    std::int64_t begin = 0, end = 0;  ///< pairs
    std::int32_t count = 0;
  };
  /// Of an expert's pairs, in this pass.
  DEVICE Items items_of(Cta& cta, std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = cta.block_x() * at_once, last = first + at_once;
    Items items;
    items.begin = begin > first ? begin : first;
    items.end = end < last ? end : last;
    if (items.begin < items.end)
      items.count = static_cast<std::int32_t>(ceil_div(items.end - items.begin, item_rows));
    return items;
  }

  DEVICE std::int32_t list(Cta& cta, std::int32_t expert, std::int64_t begin, std::int64_t end,
                           std::int32_t at) const {
    const Items of = items_of(cta, begin, end);
    ProductItem* both = items + cta.block_x() * 3 * items_max;
    ProductItem* downs = both + 2 * items_max;
    for (std::int32_t i = 0; i < of.count; ++i, ++at) {
      const std::int64_t pair = of.begin + i * std::int64_t{item_rows};
      const std::int64_t row = pair - cta.block_x() * at_once;
      const std::int64_t left = of.end - pair;
      const ExpertPlace& place = places[expert];
      ProductItem item;
      item.rows = static_cast<std::int32_t>(left < item_rows ? left : item_rows);
      item.x = in.data + row * in.row_bytes;
      item.panels = place.gate;
      item.bias = place.gate_bias;
      item.y = halves + row * halves_bytes;
      both[2 * at] = item;
      item.panels = place.up;
      item.bias = place.up_bias;
      item.y = halves + row * halves_bytes + halves_bytes / 2;
      both[2 * at + 1] = item;
      item.x = middle.data + row * middle.row_bytes;
      item.panels = place.down;
      item.bias = place.down_bias;
      item.y = nullptr;
      item.y_rows = to + pair;
      downs[at] = item;
    }
    return at;
  }
};

void chosen_mlp_by(Multiply* multiply, Stream& stream, const ExpertTable& table, GatedAct act,
                   std::int32_t per_row, std::span<const ChosenRows> pieces,
                   std::int32_t pairs_at_once) {
  Stream::Scope scope(stream);
  Scratch& scratch = stream.scratch();
  const GatedMlp& shape = *table.experts[0];
  const WeightLayout up = WeightLayout::of(shape.up), down = WeightLayout::of(shape.down);
  Products products[2];
  products[0].layout = up;
  products[0].terms = terms_of(shape.gate, up);
  products[1].layout = down;
  products[1].terms = terms_of(shape.down, down);
  const bool bf16 = wire_type(stream.numerics()) == DType::kBf16;

  SortChosen sort;
  sort.pieces = staged(stream, pieces.data(), static_cast<std::int64_t>(pieces.size()));
  sort.rows = 0;
  for (const ChosenRows& piece : pieces) sort.rows += piece.count;
  const std::int64_t pairs = sort.rows * per_row;
  const std::int64_t passes = ceil_div(pairs, pairs_at_once);
  sort.row_bytes = shape.gate.k() * (bf16 ? 2 : 4);
  sort.experts = static_cast<std::int32_t>(table.experts.size());
  sort.per_row = per_row;
  sort.at_once = pairs_at_once;
  sort.item_rows =
      static_cast<std::int32_t>(std::min(rows_at_once(stream.numerics(), products[0].terms),
                                         rows_at_once(stream.numerics(), products[1].terms)));
  sort.places = reinterpret_cast<const ExpertPlace*>(table.places.get());
  const std::int64_t together = std::min<std::int64_t>(pairs, pairs_at_once);
  // All but an expert's last item are full.
  sort.items_max = std::min(
      together, std::min<std::int64_t>(together, sort.experts) + together / sort.item_rows);
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  sort.counters =
      scratch.take<std::int32_t>(count(passes * (SortChosen::kWarps + 1)) * count(sort.experts));
  sort.from = scratch.take<const std::byte*>(count(pairs));
  sort.to = scratch.take<std::byte*>(count(pairs));
  sort.items = scratch.take<ProductItem>(count(passes * 3 * sort.items_max));
  sort.listed = scratch.take<PassItems>(count(passes));
  sort.in = PreparedRows::room(stream, shape.gate, up, together);
  sort.middle = PreparedRows::room(stream, shape.down, down, together);
  sort.halves_bytes = 2 * up.n * 4;
  sort.halves = scratch.take<std::byte>(count(together * sort.halves_bytes));
  launch(stream, {passes}, sort);

  for (std::int64_t pass = 0; pass < passes; ++pass) {
    RowsToPrepare x;
    x.rows = sort.from + pass * pairs_at_once;
    x.bf16 = bf16;
    x.count = std::min<std::int64_t>(pairs_at_once, pairs - pass * pairs_at_once);
    prepare_rows(stream, x, sort.in);
    const auto multiply_by = [&](Products& p, const PreparedRows& of, std::int64_t first,
                                 std::int64_t items, const std::int32_t* listed) {
      p.items = sort.items + (pass * 3 + first) * sort.items_max;
      p.count = items;
      p.listed = listed;
      // A row has an expert once.
      p.rows_max = static_cast<std::int32_t>(std::min<std::int64_t>(sort.item_rows, sort.rows));
      p.x_bytes = of.row_bytes;
      p.low_bytes = of.low_bytes;
      p.came = of.came;
      multiply(stream, p);
    };
    products[0].y_bytes = sort.halves_bytes;
    multiply_by(products[0], sort.in, 0, 2 * sort.items_max, &sort.listed[pass].gate_and_up);
    prepare_rows(stream, RowsToPrepare::halves(act, sort.halves, up.n, x.count), sort.middle);
    products[1].y_bf16 = bf16;
    multiply_by(products[1], sort.middle, 2, sort.items_max, &sort.listed[pass].down);
  }
}

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::chosen_mlp(Stream& stream, const ExpertTable& table, GatedAct act,
                                   std::int32_t per_row, std::span<const ChosenRows> pieces,
                                   std::int32_t pairs_at_once) {
  chosen_mlp_by(fast_products, stream, table, act, per_row, pieces, pairs_at_once);
}

void TROUPE_CUDA_SPACE::plain_chosen_mlp(Stream& stream, const ExpertTable& table, GatedAct act,
                                         std::int32_t per_row, std::span<const ChosenRows> pieces,
                                         std::int32_t pairs_at_once) {
  chosen_mlp_by(plain_products, stream, table, act, per_row, pieces, pairs_at_once);
}

}  // namespace troupe::kernels
