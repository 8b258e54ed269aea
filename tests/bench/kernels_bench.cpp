/// Prints the speed of the products beside the ceilings of this machine. Not a test.
///
///     build/tests/bench/kernels_bench [threads] [family] [rows...]
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "runtime/float_mode.h"
#include "tests/bench/timing.h"

using namespace troupe;
using namespace troupe::timing;
using namespace troupe::kernels;

namespace {

/// Reads all of it, as wide as every machine with `bf16` can.
[[gnu::target("avx2")]] std::uint64_t read_all(const std::byte* from, std::size_t bytes) {
  const auto* p = reinterpret_cast<const __m256i*>(from);
  __m256i sum[4] = {};
  for (std::size_t i = 0; i < bytes / 32; i += 4)
    for (std::size_t j = 0; j < 4; ++j)
      sum[j] = _mm256_add_epi64(sum[j], _mm256_load_si256(p + i + j));
  std::uint64_t parts[4];
  std::memcpy(parts, &sum[0], sizeof parts);
  std::uint64_t all = parts[0];
  for (int j = 1; j < 4; ++j) {
    std::memcpy(parts, &sum[j], sizeof parts);
    all += parts[0];
  }
  return all;
}

/// Bytes a second that all threads together read from memory.
double read_ceiling(ThreadPool& pool) {
  constexpr std::size_t kBytes = 256u << 20, kPart = 16u << 20, kPieces = 8;
  Buffer buffer = Buffer::in_huge_pages(kBytes);
  std::fill(buffer.data(), buffer.data() + kBytes, std::byte{1});
  std::uint64_t sums[kPieces];
  std::size_t next = 0;
  const double time = best_time(1, [&] {
    const std::byte* part = buffer.data() + next++ % (kBytes / kPart) * kPart;
    pool.parallel_for(kPieces, [&](int, std::size_t i) {
      sums[i] = read_all(part + i * (kPart / kPieces), kPart / kPieces);
    });
  });
  return kPart / time;
}

struct Format {
  const char* name;
  Codes codes;
  DType scale_dtype;
  std::int64_t block_n, block_k;  ///< 0: no scales
  bool zeros = false;
};
constexpr Format kFormats[] = {
    {"bf16", Codes::kBf16, DType::kF32, 0, 0},
    {"fp8 128x128", Codes::kFp8, DType::kF32, 128, 128},
    {"fp8 row", Codes::kFp8, DType::kBf16, 1, 1 << 20},
    {"int4 g32", Codes::kInt4, DType::kBf16, 1, 32},
    {"int4 g128", Codes::kInt4, DType::kF16, 1, 128},
    {"awq g128", Codes::kInt4, DType::kF16, 1, 128, true},
    {"mxfp4", Codes::kFp4, DType::kF8E8M0, 1, 32},
};

struct Bench {
  Bench(Numerics numerics, CpuFamily family, int threads)
      : pool(threads), stream({numerics, family, &pool}) {}
  ThreadPool pool;
  Stream stream;
};

/// A matrix as a checkpoint has it.
struct Matrix {
  Matrix(const Format& f, std::int64_t n, std::int64_t k)
      : codes(static_cast<std::size_t>(n * k * code_bits(f.codes) / 8)),
        scales(static_cast<std::size_t>(n * k * 4 / 32), std::byte{60}),
        zeros(static_cast<std::size_t>(n * k / 32), 7),
        stored{f.codes, n, k, {}} {
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 % 61);
    if (f.block_k > 0)
      stored.scales = {scales.data(), f.scale_dtype, f.block_n, f.block_k,
                       f.zeros ? zeros.data() : nullptr};
  }

  Weight pack(Numerics numerics) const {
    auto packer = WeightPacker::begin(numerics, stored).value();
    packer.add(codes.data(), stored.n);
    return packer.take();
  }

  std::vector<std::byte> codes, scales;
  std::vector<std::uint8_t> zeros;
  StoredMatrix stored;
};

/// Enough copies that no cache holds them all, as layers are.
std::vector<Weight> make_weights(Numerics numerics, const Matrix& matrix, std::size_t bytes_min) {
  std::vector<Weight> weights;
  for (std::size_t bytes = 0; bytes < bytes_min; bytes += weights.back().bytes())
    weights.push_back(matrix.pack(numerics));
  return weights;
}

void bench_linear(Bench& b, const Format& f, std::int64_t n, std::int64_t k,
                  const std::vector<std::int64_t>& row_counts, double ceiling) {
  const auto weights = make_weights(b.stream.numerics(), Matrix(f, n, k), 256u << 20);
  for (const std::int64_t rows : row_counts) {
    std::vector<float> x(static_cast<std::size_t>(rows * k), 0.5f);
    std::vector<float> y(static_cast<std::size_t>(rows * n));
    std::size_t next = 0;
    const double time = best_time(0.5, [&] {
      const Weight& w = weights[next++ % weights.size()];
      Stream::Scope scope(b.stream);
      const Activation in = prepare(b.stream, host_tensor(x.data(), DType::kF32, rows, k), w);
      linear(b.stream, w, in, host_tensor(y.data(), DType::kF32, rows, n));
    });
    const double speed = static_cast<double>(weights[0].bytes()) / time;
    std::printf("  %-12s %5ld x %5ld  rows %4ld  %9.1f us  %6.1f GB/s (%.2f)  %8.1f GFLOP/s\n",
                f.name, static_cast<long>(n), static_cast<long>(k), static_cast<long>(rows),
                time * 1e6, speed / 1e9, speed / ceiling,
                2e-9 * static_cast<double>(n * k * rows) / time);
  }
}

/// Into memory that the system gives for it, as when a model is loaded.
void bench_pack(Numerics numerics) {
  for (const Format& f : kFormats) {
    const Matrix matrix(f, 2048, 2048);
    std::size_t bytes = 0;
    const double time = best_time(0.2, [&] { bytes = matrix.pack(numerics).bytes(); });
    std::printf("  pack %-12s %.2f GB/s on one thread\n", f.name,
                1e-9 * static_cast<double>(bytes) / time);
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_float_mode();
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto only = argc > 2 ? parse_cpu_family(argv[2]) : std::nullopt;
  std::vector<std::int64_t> rows;
  for (int i = 3; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 8, 64, 512};
  for (const CpuFamily family : supported_cpu_families()) {
    if (only && *only != family) continue;
    const bool baseline = family == CpuFamily::kBaseline;
    for (const Numerics numerics : numerics_of(family)) {
      // The cache's type changes no product.
      if ((numerics == Numerics::kReference) != baseline || kv_type(numerics) == DType::kF8E4M3)
        continue;
      Bench b(numerics, family, threads);
      const double ceiling = read_ceiling(b.pool);
      std::printf("%s by %s: %d threads read %.1f GB/s\n", std::string(to_string(numerics)).c_str(),
                  std::string(to_string(family)).c_str(), threads, ceiling / 1e9);
      bench_pack(numerics);
      for (const Format& f : kFormats) {
        if (baseline) {
          bench_linear(b, f, 512, 512, {1, 16}, ceiling);
          continue;
        }
        bench_linear(b, f, 2048, 7168, rows, ceiling);
        bench_linear(b, f, 2048, 2048, rows, ceiling);
      }
    }
  }
}
