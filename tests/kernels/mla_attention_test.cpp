#include "kernels/mla_attention.h"

#include <algorithm>

#include "support.h"

namespace troupe::kernels {
namespace {

struct AttentionShape {
  std::size_t heads, kv_lora, rope;
};

const std::vector<AttentionShape> kAttentionShapes = {
    {1, 8, 4}, {3, 20, 6}, {16, 64, 16}, {17, 128, 32}, {5, 77, 9}};

/// A cache with one sequence per table, its blocks strewn over the pool.
struct Cache {
  Cache(Numerics family, const AttentionShape& s, std::size_t block_size, std::size_t positions)
      : view{nullptr, wire_type(family), block_size, s.kv_lora, s.rope} {
    const std::size_t blocks = (positions + block_size - 1) / block_size;
    bytes = Buffer(blocks * 3 * block_size * view.slot_bytes());
    std::fill(bytes.span().begin(), bytes.span().end(), std::byte{0xff});  // NaNs
    view.base = bytes.data();
    for (std::size_t b = 0; b < blocks; ++b)
      table.push_back(static_cast<std::int32_t>((blocks - 1 - b) * 3));
  }

  void fill(const Context& ctx, const std::vector<float>& latent, const std::vector<float>& rope,
            std::size_t first, std::size_t count) {
    std::vector<const std::int32_t*> tables(count, table.data());
    std::vector<std::int32_t> at(count);
    for (std::size_t i = 0; i < count; ++i) at[i] = static_cast<std::int32_t>(first + i);
    store_latent(ctx, view, {tables.data(), at.data()},
                 const_rows(latent.data() + first * view.kv_lora, count, view.kv_lora),
                 const_rows(rope.data() + first * view.rope, count, view.rope));
  }

  LatentCache view;
  Buffer bytes;
  std::vector<std::int32_t> table;
};

struct Problem {
  Problem(const AttentionShape& shape, std::size_t positions)
      : s(shape),
        n(positions),
        latent(random_values(n * s.kv_lora, 1)),
        rope(random_values(n * s.rope, 2)),
        q_latent(random_values(n * s.heads * s.kv_lora, 3, 2)),
        q_rope(random_values(n * s.heads * s.rope, 4, 2)) {}

  /// Rows first, first + 1, ... as one call: row r is the query of position r.
  std::vector<float> run(const Context& ctx, const Cache& cache, std::size_t first,
                         std::size_t rows) const {
    std::vector<const std::int32_t*> tables(rows, cache.table.data());
    std::vector<std::int32_t> at(rows);
    for (std::size_t i = 0; i < rows; ++i) at[i] = static_cast<std::int32_t>(first + i);
    std::vector<float> out(rows * s.heads * s.kv_lora, 7.0f);
    const MlaQueries q = {
        const_heads(q_latent.data() + first * s.heads * s.kv_lora, rows, s.heads, s.kv_lora),
        const_heads(q_rope.data() + first * s.heads * s.rope, rows, s.heads, s.rope), 0.3f};
    mla_attention(ctx, cache.view, {tables.data(), at.data()}, q,
                  make_heads(out.data(), rows, s.heads, s.kv_lora));
    return out;
  }

  AttentionShape s;
  std::size_t n;
  std::vector<float> latent, rope, q_latent, q_rope;
};

double worst_error(const Problem& p, Numerics family, const std::vector<float>& out) {
  const bool bf16 = wire_type(family) == WireType::kBf16, round_q = rounds_activations(family);
  const auto stored = [&](float x) { return static_cast<double>(bf16 ? rounded(x) : x); };
  const auto query = [&](float x) { return static_cast<double>(round_q ? rounded(x) : x); };
  const std::size_t heads = p.s.heads, lora = p.s.kv_lora;
  double worst = 0;
  for (std::size_t r = 0; r < p.n; ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<double> score(r + 1), exact(lora);
      for (std::size_t i = 0; i <= r; ++i) {
        for (std::size_t d = 0; d < lora; ++d)
          score[i] +=
              query(p.q_latent[(r * heads + h) * lora + d]) * stored(p.latent[i * lora + d]);
        for (std::size_t d = 0; d < p.s.rope; ++d)
          score[i] +=
              query(p.q_rope[(r * heads + h) * p.s.rope + d]) * stored(p.rope[i * p.s.rope + d]);
      }
      const double highest = *std::max_element(score.begin(), score.end());
      double total = 0;
      for (std::size_t i = 0; i <= r; ++i) {
        const double weight = std::exp(static_cast<double>(0.3f) * (score[i] - highest));
        total += weight;
        for (std::size_t d = 0; d < lora; ++d) exact[d] += weight * stored(p.latent[i * lora + d]);
      }
      for (std::size_t d = 0; d < lora; ++d)
        worst = std::max(worst, std::abs(out[(r * heads + h) * lora + d] - exact[d] / total));
    }
  }
  return worst;
}

TEST_CASE("attention agrees with float64 for every family and odd shape") {
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family, 2);
    for (const AttentionShape& s : kAttentionShapes) {
      INFO(to_string(family) << " heads=" << s.heads << " kv_lora=" << s.kv_lora);
      const Problem p(s, 150);
      Cache cache(family, s, 16, p.n);
      cache.fill(ctx, p.latent, p.rope, 0, p.n);
      CHECK(worst_error(p, family, p.run(ctx, cache, 0, p.n)) < 2e-5);
    }
  }
}

TEST_CASE("a row of attention depends on its position only") {
  for (Numerics family : supported_numerics()) {
    for (const AttentionShape& s : kAttentionShapes) {
      INFO(to_string(family) << " heads=" << s.heads);
      const Problem p(s, 140);
      TestContext one(family);
      Cache whole(family, s, 16, p.n);
      whole.fill(one, p.latent, p.rope, 0, p.n);
      const auto expected = p.run(one, whole, 0, p.n);
      const std::size_t row = s.heads * s.kv_lora;
      for (std::size_t block_size : {1, 16, 24, 64, 100}) {
        // Later positions are stored after earlier ones were attended to, a chunk at a time.
        for (std::size_t step : {1, 7, 64, 140}) {
          TestContext ctx(family, 1 + static_cast<int>(step % 4));
          Cache cache(family, s, block_size, p.n);
          for (std::size_t first = 0; first < p.n; first += step) {
            const std::size_t count = std::min(step, p.n - first);
            cache.fill(ctx, p.latent, p.rope, first, count);
            const auto out = p.run(ctx, cache, first, count);
            CHECK(same_bits(out.data(), expected.data() + first * row, out.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("not-a-number in a query or the cache ends in not-a-number, not in a crash") {
  const AttentionShape s = {2, 24, 8};
  for (Numerics family : supported_numerics()) {
    TestContext ctx(family);
    Problem p(s, 70);
    p.latent[10 * s.kv_lora] = std::nanf("");
    p.latent[20 * s.kv_lora] = INFINITY;
    p.q_latent[3] = -INFINITY;
    Cache cache(family, s, 16, p.n);
    cache.fill(ctx, p.latent, p.rope, 0, p.n);
    const auto out = p.run(ctx, cache, 0, p.n);
    CHECK(std::isnan(out.back()));
    // Positions before the bad one never saw it.
    CHECK(std::isfinite(out[9 * s.heads * s.kv_lora]));
  }
}

}  // namespace
}  // namespace troupe::kernels
