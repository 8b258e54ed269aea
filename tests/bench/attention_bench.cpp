/// Prints the speed of attention beside what bounds it: the memory's bandwidth, or the peak of
/// fused multiply-adds. Not a test.
///
///     build/tests/bench/attention_bench [threads] [family] [case]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "runtime/float_mode.h"
#include "tests/bench/timing.h"

using namespace troupe;
using namespace troupe::timing;
using namespace troupe::kernels;

namespace {

/// Bytes a second that all threads together read from memory.
double read_ceiling(ThreadPool& pool) {
  constexpr std::size_t kBytes = 256u << 20, kPiece = 1u << 20;
  Buffer buffer(kBytes);
  std::fill(buffer.data(), buffer.data() + kBytes, std::byte{1});
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

constexpr long kSteps = 2'000'000;  // of 12 chains each
#define CHAINS(R)                                                                       \
  "vfmadd231ps %" R "12, %" R "13, %" R "0\n vfmadd231ps %" R "12, %" R "13, %" R "1\n" \
  "vfmadd231ps %" R "12, %" R "13, %" R "2\n vfmadd231ps %" R "12, %" R "13, %" R "3\n" \
  "vfmadd231ps %" R "12, %" R "13, %" R "4\n vfmadd231ps %" R "12, %" R "13, %" R "5\n" \
  "vfmadd231ps %" R "12, %" R "13, %" R "6\n vfmadd231ps %" R "12, %" R "13, %" R "7\n" \
  "vfmadd231ps %" R "12, %" R "13, %" R "8\n vfmadd231ps %" R "12, %" R "13, %" R "9\n" \
  "vfmadd231ps %" R "12, %" R "13, %" R "10\n vfmadd231ps %" R "12, %" R "13, %" R "11\n"

/// Operations a second of all threads, in registers.
double fma_peak(ThreadPool& pool, bool wide) {
  const double time = best_time(0.2, [&] {
    pool.on_each_thread([&](int) {
      for (long i = 0; i < kSteps; ++i)
        if (wide)
          asm volatile(CHAINS("zmm"));
        else
          asm volatile(CHAINS("ymm"));
    });
  });
  return static_cast<double>(pool.threads()) * kSteps * 12 * (wide ? 16 : 8) * 2 / time;
}

struct Case {
  const char* name;
  std::int64_t heads, kv_heads, k_dim, v_dim;
  bool shared;
};
const Case kCases[] = {{"V3, 128 heads", 128, 1, 576, 512, true},
                       {"V3, 16 heads", 16, 1, 576, 512, true},
                       {"GQA 32 on 8", 32, 8, 128, 128, false},
                       {"GQA 64 on 8", 64, 8, 128, 128, false}};

struct Machine {
  Stream& stream;
  double bytes_ceiling, flops_ceiling;
};

/// `sequences`, of which each has `rows` rows that end at `context`.
void bench(const Machine& m, const Case& c, std::int64_t sequences, std::int64_t rows,
           std::int64_t context) {
  constexpr std::int64_t kBlockSize = 64;
  const std::int64_t blocks = (context + kBlockSize - 1) / kBlockSize;
  const DType type = kv_type(m.stream.numerics());
  const auto pool_of = [&](Buffer& bytes, std::int64_t row) {
    bytes = Buffer::in_huge_pages(
        static_cast<std::size_t>(sequences * blocks * kBlockSize * row) * dtype_size(type));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes.data()[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3c : i * 37 % 251);
    return KvPool{bytes.data(), type, kBlockSize, row};
  };
  Buffer key_bytes, value_bytes;
  AttentionInputs in;
  in.keys = pool_of(key_bytes, c.kv_heads * c.k_dim);
  in.values = c.shared ? in.keys : pool_of(value_bytes, c.kv_heads * c.v_dim);
  in.kv_heads = c.kv_heads;
  in.scale = 0.05f;
  std::vector<std::vector<std::int32_t>> tables(static_cast<std::size_t>(sequences));
  std::vector<const std::int32_t*> of_row;
  std::vector<std::int32_t> positions;
  for (std::int64_t s = 0; s < sequences; ++s) {
    auto& table = tables[static_cast<std::size_t>(s)];
    for (std::int64_t b = 0; b < blocks; ++b)
      table.push_back(static_cast<std::int32_t>(b * sequences + s));
    for (std::int64_t r = 0; r < rows; ++r) {
      of_row.push_back(table.data());
      positions.push_back(static_cast<std::int32_t>(context - rows + r));
    }
  }
  const std::int64_t all = sequences * rows;
  std::vector<float> q(static_cast<std::size_t>(all * c.heads * c.k_dim));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 61) * 0.03f - 0.9f;
  std::vector<float> out(static_cast<std::size_t>(all * c.heads * c.v_dim));
  const Tensor x = host_tensor(q.data(), DType::kF32, all, c.heads * c.k_dim).split(c.heads);
  const Tensor y = host_tensor(out.data(), DType::kF32, all, c.heads * c.v_dim).split(c.heads);
  const double time = best_time(
      0.3, [&] { attention(m.stream, in, {of_row.data(), positions.data()}, x, y); });
  double pairs = 0;
  for (const auto p : positions) pairs += p + 1;
  const double flops = 2.0 * pairs * static_cast<double>(c.heads * (c.k_dim + c.v_dim));
  const double bytes = static_cast<double>(sequences * context * c.kv_heads *
                                           (c.k_dim + (c.shared ? 0 : c.v_dim))) *
                       static_cast<double>(dtype_size(type));
  const double bound = std::max(bytes / m.bytes_ceiling, flops / m.flops_ceiling);
  const bool by_memory = bytes / m.bytes_ceiling > flops / m.flops_ceiling;
  std::printf("  %-14s %2ld x %3ld rows to %5ld %9.1f us %6.1f GB/s %6.1f GFLOP/s %3.0f %% of %s\n",
              c.name, static_cast<long>(sequences), static_cast<long>(rows),
              static_cast<long>(context), time * 1e6, bytes / time / 1e9, flops / time / 1e9,
              100 * bound / time, by_memory ? "memory" : "FMA");
}

}  // namespace

int main(int argc, char** argv) {
  set_float_mode();
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto only = argc > 2 ? parse_cpu_family(argv[2]) : std::nullopt;
  ThreadPool pool(threads);
  const double ceiling = read_ceiling(pool);
  std::printf("%d threads read %.1f GB/s\n", threads, ceiling / 1e9);
  for (const CpuFamily family : supported_cpu_families()) {
    if (family == CpuFamily::kBaseline || (only && *only != family)) continue;
    const double peak = fma_peak(pool, family != CpuFamily::kAvx2);
    std::printf("%s: %.0f GFLOP/s\n", std::string(to_string(family)).c_str(), peak / 1e9);
    for (const Numerics numerics : numerics_of(family)) {
      if (numerics == Numerics::kReference) continue;
      std::printf(" %s\n", std::string(to_string(numerics)).c_str());
      Stream stream({numerics, family, &pool});
      // A vdpbf16ps does what two fma do, in the time of one.
      const Machine machine{stream, ceiling, sums_in_one_chain(numerics) ? 2 * peak : peak};
      for (const Case& c : kCases) {
        if (argc > 3 && std::strstr(c.name, argv[3]) == nullptr) continue;
        for (const std::int64_t context : {1024, 8192, 32768})
          for (const std::int64_t sequences : {1, 16})
            if (sequences * context < 200000) bench(machine, c, sequences, 1, context);
        if (kv_type(numerics) == DType::kBf16)
          for (const std::int64_t before : {0, 4096, 8192})
            if (c.heads < 128 || before == 0) bench(machine, c, 1, 512, before + 512);
      }
    }
  }
}
