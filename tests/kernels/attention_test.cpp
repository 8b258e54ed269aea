#include "kernels/attention.h"

#include "support.h"
#include "tests/kernels/twin_attention.h"

namespace troupe::kernels {
namespace {

struct Shape {
  std::int64_t heads, kv_heads, k_dim, v_dim;
  bool shared = false;  ///< values are the first numbers of the keys (MLA)
};

const Shape kMla = {5, 1, 80, 64, true};
const Shape kShapes[] = {
    kMla,           {1, 1, 8, 4, true}, {17, 1, 77, 45, true}, {8, 2, 64, 64},
    {6, 3, 40, 24}, {3, 3, 33, 31},     {128, 1, 32, 32, true}};

std::vector<float> slice(const std::vector<float>& v, std::size_t at, std::size_t n) {
  std::vector<float> out(n);
  std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(at), n, out.begin());
  return out;
}

/// One sequence: its cache, and queries for rows at positions of any order.
struct Problem {
  Problem(Numerics n, const Shape& shape, std::int64_t context, unsigned seed = 1)
      : numerics(n),
        s(shape),
        count(context),
        keys(random_values(static_cast<std::size_t>(count * s.kv_heads * s.k_dim), seed, 2)),
        values(random_values(static_cast<std::size_t>(count * s.kv_heads * s.v_dim), seed + 1)) {}

  /// Rows at the positions given.
  std::vector<float> queries(std::size_t rows) const {
    return random_values(rows * static_cast<std::size_t>(s.heads * s.k_dim), 3, 2);
  }

  std::vector<float> expected(const std::vector<float>& q,
                              const std::vector<std::int32_t>& positions) const {
    std::vector<float> out;
    std::vector<twin::Context> contexts;
    for (std::int64_t h = 0; h < s.kv_heads; ++h) contexts.push_back(context_of(h));
    for (std::size_t i = 0; i < positions.size() * static_cast<std::size_t>(s.heads); ++i) {
      const auto head = static_cast<std::int64_t>(i) % s.heads;
      const auto k = static_cast<std::size_t>(s.k_dim);
      const auto& context = contexts[static_cast<std::size_t>(head * s.kv_heads / s.heads)];
      const float* sink = sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(head)];
      const std::int32_t at = positions[i / static_cast<std::size_t>(s.heads)];
      const auto one = twin::attention(context, slice(q, i * k, k), at, sink);
      out.insert(out.end(), one.begin(), one.end());
    }
    return out;
  }

  twin::Context context_of(std::int64_t head) const {
    twin::Context c{numerics, scale, window, {}, {}};
    for (std::int64_t p = 0; p < count; ++p) {
      c.keys.push_back(cached(keys, (p * s.kv_heads + head) * s.k_dim, s.k_dim));
      c.values.push_back(s.shared
                             ? cached(keys, p * s.k_dim, s.v_dim)
                             : cached(values, (p * s.kv_heads + head) * s.v_dim, s.v_dim));
    }
    return c;
  }
  std::vector<float> cached(const std::vector<float>& from, std::int64_t at,
                            std::int64_t n) const {
    std::vector<float> row = slice(from, static_cast<std::size_t>(at), static_cast<std::size_t>(n));
    for (float& x : row) x = twin::cached(numerics, x);
    return row;
  }

  Numerics numerics;
  Shape s;
  std::int64_t count;
  std::vector<float> keys, values;
  std::vector<float> sinks;
  std::int64_t window = 0;
  float scale = 0.3f;
};

/// The problem's sequence in a cache whose blocks are strewn, all else NaN.
struct Cache {
  Cache(Stream& stream, Problem& p, std::int64_t block_size)
      : keys(pool(p, block_size, p.s.kv_heads * p.s.k_dim, key_bytes)),
        values(p.s.shared ? keys : pool(p, block_size, p.s.kv_heads * p.s.v_dim, value_bytes)) {
    const std::int64_t blocks = (p.count + block_size - 1) / block_size;
    for (std::int64_t b = 0; b < blocks; ++b)
      table.push_back(static_cast<std::int32_t>((blocks - 1 - b) * 3));
    std::vector<std::int32_t> at(static_cast<std::size_t>(p.count));
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<std::int32_t>(i);
    const std::vector<const std::int32_t*> tables(at.size(), table.data());
    const PagedRows where{tables.data(), at.data()};
    // In two parts, as a latent and its rotary part come.
    const Tensor x = matrix(p.keys, p.count);
    const std::int64_t part = x.dim / 3;
    store_kv(stream, keys, where, x.columns(0, part));
    store_kv(stream, keys, where, x.columns(part, x.dim - part), part);
    if (!p.s.shared) store_kv(stream, values, where, matrix(p.values, p.count));
  }

  static KvPool pool(const Problem& p, std::int64_t block_size, std::int64_t row, Buffer& bytes) {
    const DType type = kv_type(p.numerics);
    const std::int64_t blocks = (p.count + block_size - 1) / block_size;
    bytes = Buffer(static_cast<std::size_t>(blocks * 3 * block_size * row) * dtype_size(type));
    std::fill(bytes.span().begin(), bytes.span().end(), std::byte{0xff});
    return {bytes.data(), type, block_size, row};
  }

  Buffer key_bytes, value_bytes;
  KvPool keys, values;
  std::vector<std::int32_t> table;
};

std::vector<float> run(Stream& stream, const Problem& p, const Cache& cache,
                       std::vector<float> q, const std::vector<std::int32_t>& positions) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  const std::vector<const std::int32_t*> tables(positions.size(), cache.table.data());
  AttentionInputs in;
  in.keys = cache.keys;
  in.values = cache.values;
  in.kv_heads = p.s.kv_heads;
  in.scale = p.scale;
  in.window = p.window;
  in.sinks = p.sinks.empty() ? nullptr : p.sinks.data();
  std::vector<float> out(static_cast<std::size_t>(rows * p.s.heads * p.s.v_dim), 7.0f);
  attention(stream, in, {tables.data(), positions.data()}, matrix(q, rows).split(p.s.heads),
            matrix(out, rows).split(p.s.heads));
  return out;
}

std::vector<std::int32_t> last_positions(std::int64_t count, std::int64_t rows) {
  std::vector<std::int32_t> at;
  for (std::int64_t i = count - rows; i < count; ++i) at.push_back(static_cast<std::int32_t>(i));
  return at;
}

void check(Problem& p, const std::vector<std::int32_t>& positions,
           std::initializer_list<std::int64_t> block_sizes, int threads, float in_query = 0) {
  const std::vector<Family> all = cache_families();
  if (std::none_of(all.begin(), all.end(),
                   [&](const Family& f) { return f.numerics == p.numerics; }))
    return;
  auto q = p.queries(positions.size());
  if (in_query != 0) q[5] = in_query;
  const auto expected = p.expected(q, positions);
  for (const Family& f : all) {
    if (f.numerics != p.numerics) continue;
    TestStream stream(f, threads);
    for (const std::int64_t block_size : block_sizes) {
      INFO(to_string(f) << " heads " << p.s.heads << " k "
                                 << p.s.k_dim << " context " << p.count << " rows "
                                 << positions.size() << " blocks of " << block_size);
      const Cache cache(stream, p, block_size);
      const auto out = run(stream, p, cache, q, positions);
      CHECK(differences(out, expected) == 0);
    }
  }
}

TEST_CASE("attention of every family is its scalar twin's, whatever the shape") {
  for (const Numerics n : all_numerics())
    for (const Shape& s : kShapes) {
      Problem p(n, s, 300);
      check(p, {299}, {16}, 1);
      check(p, last_positions(300, 21), {7}, 3);
      Problem short_one(n, s, 5);
      check(short_one, last_positions(5, 5), {1, 256}, 2);
    }
}

TEST_CASE("blocks of any size and threads of any number give the same bits") {
  for (const Numerics n : all_numerics()) {
    Problem p(n, kMla, 700);
    check(p, last_positions(700, 3), {1, 7, 16, 100, 256}, 4);
    check(p, {3, 650, 256, 255, 511, 512}, {16}, 2);
  }
}

TEST_CASE("parts of a long context are joined in their order, cut or not") {
  for (const Numerics n : all_numerics())
    for (const std::int64_t count : {1024, 1025, 2304, 5000}) {
      Problem p(n, {2, 1, 48, 33, true}, count);
      check(p, {static_cast<std::int32_t>(count - 1)}, {64}, 1 + static_cast<int>(count % 4));
    }
}

TEST_CASE("heads of a short context are shared by threads") {
  for (const Numerics n : all_numerics())
    for (const std::int64_t heads : {9, 16, 37}) {
      Problem p(n, {heads, 1, 576, 512, true}, 250);
      for (const int threads : {1, 2, 3, 7}) check(p, {249}, {16}, threads);
    }
}

TEST_CASE("windows and sinks") {
  for (const Numerics n : all_numerics())
    for (const std::int64_t window : {1, 5, 128, 300, 1100}) {
      Problem p(n, {8, 2, 32, 48}, 1400);
      p.window = window;
      p.sinks = random_values(8, 9, 4);
      check(p, last_positions(1400, 5), {16}, 1);
      check(p, {0, 3, 127, 128, 1030}, {16}, 2);
    }
}

TEST_CASE("a row depends neither on the rows beside it nor on the threads") {
  for (const Family& f : families()) {
    Problem p(f.numerics, kMla, 512);
    const auto positions = last_positions(512, 512);
    const auto q = p.queries(512);
    const std::size_t in = q.size() / 512;
    {
      TestStream one(f);
      const Cache cache(one, p, 16);
      std::vector<float> alone;
      for (std::size_t r = 0; r < 512; ++r) {
        const auto y = run(one, p, cache, slice(q, r * in, in), {positions[r]});
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int threads = 1; threads <= 4; threads += f.step_of_threads()) {
        TestStream stream(f, threads);
        for (const std::size_t rows : kRowCounts) {
          const auto y = run(stream, p, cache, slice(q, 0, rows * in),
                             {positions.begin(), positions.begin() + static_cast<long>(rows)});
          CHECK(same_bits(y.data(), alone.data(), y.size()));
        }
      }
    }
  }
}

TEST_CASE("sequences in one call keep to themselves") {
  for (const Numerics n : all_numerics()) {
    Problem a(n, {8, 2, 32, 32}, 270, 5), b(n, {8, 2, 32, 32}, 40, 7);
    const auto q = a.queries(3);
    const std::vector<std::int32_t> positions = {269, 39, 30};
    auto expected = a.expected(slice(q, 0, 256), {269});
    const auto rest = b.expected(slice(q, 256, 512), {39, 30});
    expected.insert(expected.end(), rest.begin(), rest.end());
    for (const Family& f : cache_families()) {
      if (f.numerics != n) continue;
      TestStream stream(f, 2);
      // One pool for both: the second's blocks lie between the first's.
      Cache cache(stream, a, 16);
      std::vector<std::int32_t> other = {1, 4, 7};
      std::vector<std::int32_t> at(40);
      for (int i = 0; i < 40; ++i) at[static_cast<std::size_t>(i)] = i;
      const std::vector<const std::int32_t*> theirs(40, other.data());
      store_kv(stream, cache.keys, {theirs.data(), at.data()}, matrix(b.keys, 40));
      store_kv(stream, cache.values, {theirs.data(), at.data()}, matrix(b.values, 40));
      const std::int32_t* tables[] = {cache.table.data(), other.data(), other.data()};
      std::vector<float> queries = q, out(3 * 8 * 32);
      AttentionInputs in{cache.keys, cache.values, 2, a.scale, 0, nullptr};
      attention(stream, in, {tables, positions.data()}, matrix(queries, 3).split(8),
                matrix(out, 3).split(8));
      CHECK(differences(out, expected) == 0);
    }
  }
}

/// More parts than a GPU has multiprocessors, so that a sequence's first parts are folded as they
/// come: two of three or four of 70 sequences, all of 140.
TEST_CASE("many long sequences have the bits of each alone") {
  struct Case {
    std::int64_t rows, window;
  };
  constexpr std::int64_t kCount = 3300;
  for (const Numerics n : all_numerics())
    for (const auto [rows, window] : {Case{70, 0}, {70, 1500}, {140, 1500}, {140, 0}}) {
      Problem p(n, {3, 1, 32, 32, true}, kCount);
      p.window = window;
      p.sinks = {0.5f, -2, 3};
      const std::vector<std::int32_t> at = {2100, 3000, kCount - 1};
      std::vector<std::int32_t> positions;
      for (std::int64_t r = 0; r < rows; ++r) positions.push_back(at[r % 3]);
      const auto q = p.queries(3);
      const auto expected = p.expected(q, at);
      for (const Family& f : cache_families()) {
        if (f.numerics != n) continue;
        INFO(to_string(f) << " rows " << rows << " window " << window);
        TestStream stream(f, 2);
        const Cache cache(stream, p, 16);
        // Tables of their own, over the same blocks.
        const std::vector own(positions.size(), cache.table);
        std::vector<const std::int32_t*> tables;
        std::vector<float> queries, out(expected.size() / 3 * own.size());
        for (std::size_t r = 0; r < own.size(); ++r) {
          tables.push_back(own[r].data());
          const auto one = slice(q, r % 3 * q.size() / 3, q.size() / 3);
          queries.insert(queries.end(), one.begin(), one.end());
        }
        AttentionInputs in{cache.keys, cache.values, 1, p.scale, window, p.sinks.data()};
        attention(stream, in, {tables.data(), positions.data()}, matrix(queries, rows).split(3),
                  matrix(out, rows).split(3));
        for (std::size_t r = 0, size = expected.size() / 3; r < own.size(); ++r)
          CHECK(differences(slice(out, r * size, size), slice(expected, r % 3 * size, size)) == 0);
      }
    }
}

TEST_CASE("hostile values: what the twin makes of them, and only who sees them") {
  const float kHostile[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-38f, 1.2e-38f, 1e-45f,
                            0x1p-126f, 0x1.fffffep-127f, 448.0f, 1e30f, -0.0f};
  for (const Numerics n : all_numerics())
    for (const float bad : kHostile) {
      INFO("value " << bad);
      for (const int where : {0, 30, 64}) {  // rotary part of the key, latent, value
        Problem p(n, {3, 1, 80, 64, true}, 290);
        p.keys[static_cast<std::size_t>(270 * 80 + where)] = bad;
        check(p, {269, 270, 271, 289}, {16}, 1);
      }
      Problem p(n, {4, 2, 32, 40}, 290);
      p.values[static_cast<std::size_t>(262 * 80 + 41)] = bad;
      Problem asked(n, kMla, 40);
      check(asked, {39, 20}, {16}, 1, bad);
      p.sinks = {bad, 0, 1, bad};
      p.window = 20;
      check(p, last_positions(290, 40), {16}, 1);
    }
}

TEST_CASE("scores of any size") {
  for (const Numerics n : all_numerics())
    for (const float scale : {0.0f, 1e-20f, 40.0f, 1e10f, 1e38f}) {
      Problem p(n, kMla, 600);
      p.scale = scale;
      check(p, {599, 17}, {16}, 1);
    }
}

TEST_CASE("attention agrees with float64") {
  Problem p(Numerics::kReference, kMla, 600);
  const auto q = p.queries(1);
  TestStream stream({p.numerics, CpuFamily::kBaseline});
  const Cache cache(stream, p, 16);
  const auto out = run(stream, p, cache, q, {599});
  std::vector<double> weights(600), exact(64);
  double highest = -1e30, total = 0;
  for (std::size_t i = 0; i < 600; ++i) {
    for (std::size_t d = 0; d < 80; ++d)
      weights[i] += static_cast<double>(q[d]) * static_cast<double>(p.keys[i * 80 + d]);
    weights[i] *= static_cast<double>(p.scale);
    highest = std::max(highest, weights[i]);
  }
  for (std::size_t i = 0; i < 600; ++i) {
    weights[i] = std::exp(weights[i] - highest);
    total += weights[i];
    for (std::size_t d = 0; d < 64; ++d)
      exact[d] += weights[i] * static_cast<double>(p.keys[i * 80 + d]);
  }
  for (std::size_t d = 0; d < 64; ++d)
    CHECK(static_cast<double>(out[d]) == doctest::Approx(exact[d] / total).epsilon(1e-5));
}

TEST_CASE("attention allocates nothing once it is warm") {
  for (const Family& f : families()) {
    Problem p(f.numerics, kMla, 300);
    TestStream stream(f, 2);
    const Cache cache(stream, p, 16);
    const auto q = p.queries(3);
    for (int i = 0; i < 2; ++i) run(stream, p, cache, q, {299, 298, 297});
    const std::size_t held = stream.stream.scratch().bytes();
    run(stream, p, cache, q, {299, 298, 297});
    CHECK(stream.stream.scratch().bytes() == held);
  }
}

}  // namespace
}  // namespace troupe::kernels
