/// Prints the speed of the kernels beside the ceiling of this machine. Not a test.
///
///     build/tests/bench/kernels_bench [threads] [family]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/mla_attention.h"
#include "runtime/bf16.h"

using namespace troupe;
using namespace troupe::kernels;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The shortest of several timings of about `budget` seconds in all.
template <class Body>
double best_time(double budget, const Body& body) {
  body();
  double best = 1e9;
  for (const double end = seconds() + budget; seconds() < end;) {
    const double start = seconds();
    body();
    best = std::min(best, seconds() - start);
  }
  return best;
}

struct Bench {
  Numerics family;
  ThreadPool pool;
  Scratch scratch;
  Context context{family, &pool, &scratch};
};

/// Bytes a second that all threads together read from memory.
double read_ceiling(ThreadPool& pool) {
  constexpr std::size_t kBytes = 256u << 20, kPiece = 1u << 20;
  const Buffer buffer(kBytes);
  std::vector<std::uint64_t> sums(kBytes / kPiece);
  const double time = best_time(0.5, [&] {
    pool.parallel_for(sums.size(), [&](int, std::size_t i) {
      const auto* p = reinterpret_cast<const std::uint64_t*>(buffer.data() + i * kPiece);
      std::uint64_t sum[8] = {};
      for (std::size_t j = 0; j < kPiece / 8; j += 8)
        for (std::size_t l = 0; l < 8; ++l) sum[l] += p[j + l];
      sums[i] = std::accumulate(sum, sum + 8, std::uint64_t{0});
    });
  });
  return kBytes / time;
}

void bench_linear(Bench& b, std::int64_t n, std::int64_t k, double ceiling) {
  // Enough copies that small weights are not always in the nearest cache, as layers are not.
  const auto count = static_cast<std::size_t>(n * k);
  const std::size_t copies = std::clamp<std::size_t>((96u << 20) / (count * 2), 1, 64);
  std::vector<Bf16> source(count);
  for (std::size_t i = 0; i < count; ++i) source[i] = to_bf16(static_cast<float>(i % 97) * 0.01f);
  std::vector<PackedMatrix> weights;
  for (std::size_t i = 0; i < copies; ++i)
    weights.push_back(
        pack_matrix(b.family, dense_source(source.data(), WeightType::kBf16, n, k)).value());
  for (std::size_t rows : {1, 2, 4, 8, 16, 32, 64, 256}) {
    if (b.family == Numerics::kReference && rows > 16) break;
    std::vector<float> x(rows * static_cast<std::size_t>(k), 0.5f);
    std::vector<float> y(rows * static_cast<std::size_t>(n));
    std::size_t next = 0;
    const ConstRows in = const_rows(x.data(), rows, static_cast<std::size_t>(k));
    const Rows out = make_rows(y.data(), rows, static_cast<std::size_t>(n));
    const double time = best_time(0.15, [&] {
                          for (std::size_t i = 0; i < copies; ++i)
                            linear(b.context, weights[next++ % copies], in, out);
                        }) /
                        static_cast<double>(copies);
    const double bytes = static_cast<double>(count) * 2 / time;
    std::printf("  linear %5ld x %5ld  rows %4zu  %9.2f us  %7.1f GB/s (%3.0f %%)  %8.1f GFLOP/s\n",
                static_cast<long>(n), static_cast<long>(k), rows, time * 1e6, bytes / 1e9,
                100 * bytes / ceiling, 2e-9 * static_cast<double>(count * rows) / time);
  }
}

void bench_pack(Numerics family) {
  constexpr std::int64_t n = 2048, k = 2048;
  const std::vector<Bf16> source(n * k);
  const double time = best_time(0.2, [&] {
    const auto w = pack_matrix(family, dense_source(source.data(), WeightType::kBf16, n, k));
    if (!w.ok()) std::abort();
  });
  std::printf("  pack %.2f GB/s on one thread\n", 2e-9 * n * k / time);
}

void bench_attention(Bench& b, std::size_t heads, std::int32_t context, std::size_t rows) {
  LatentCache cache{nullptr, wire_type(b.family), 16, 512, 64};
  const std::size_t blocks = static_cast<std::size_t>(context) / 16 + 1;
  Buffer bytes(blocks * 16 * cache.slot_bytes());
  cache.base = bytes.data();
  std::vector<std::int32_t> table(blocks), positions(rows, context - 1);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<const std::int32_t*> tables(rows, table.data());
  const std::vector<float> latent(rows * heads * 512, 0.1f), rope(rows * heads * 64, 0.1f);
  std::vector<float> out(latent.size());
  const MlaQueries q = {const_heads(latent.data(), rows, heads, 512),
                        const_heads(rope.data(), rows, heads, 64), 0.1f};
  const double time = best_time(0.2, [&] {
    mla_attention(b.context, cache, {tables.data(), positions.data()}, q,
                  make_heads(out.data(), rows, heads, 512));
  });
  const double flops = 2.0 * static_cast<double>(rows * heads) * context * (512 + 64 + 512);
  std::printf("  attention heads %3zu  context %5d  rows %3zu  %9.1f us  %8.1f GFLOP/s\n", heads,
              context, rows, time * 1e6, flops / time / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto only = argc > 2 ? parse_numerics(argv[2]) : std::nullopt;
  ThreadPool pool(threads);
  const double ceiling = read_ceiling(pool);
  std::printf("%d threads read %.1f GB/s\n", threads, ceiling / 1e9);
  for (Numerics family : supported_numerics()) {
    if (only && *only != family) continue;
    std::printf("%s\n", std::string(to_string(family)).c_str());
    Bench b{family, ThreadPool(threads), {}};
    bench_pack(family);
    bench_linear(b, 64, 256, ceiling);
    bench_linear(b, 512, 512, ceiling);
    bench_linear(b, 2048, 2048, ceiling);
    if (family != Numerics::kReference) bench_linear(b, 7168, 2048, ceiling);
    bench_attention(b, 16, 1024, 1);
    bench_attention(b, 128, 1024, 4);
  }
}
