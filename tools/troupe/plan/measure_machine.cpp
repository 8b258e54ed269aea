#include "tools/troupe/plan/measure_machine.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "model/cost/work.h"
#include "model/spec/held_forms.h"
#include "runtime/buffer.h"
#include "runtime/float_mode.h"

namespace troupe {
namespace {

using kernels::host_tensor;
using kernels::Stream;
using kernels::Tensor;
using kernels::Weight;

/// More than the last caches hold.
constexpr std::size_t kReadBytes = 256u << 20, kWeightBytes = 96u << 20;
/// Of a matrix on each side: so large that what an op takes beside its bytes is next to nothing,
/// and so small that it counts.
constexpr std::int64_t kSide = 2048, kSmallSide = 512;
constexpr std::int64_t kRows[] = {1, 2, 4, 8, 32, 128, 512};
constexpr double kPointSeconds = 0.04;
/// Positions that attention is measured over: a whole number of its tiles.
constexpr std::int64_t kFewPositions = 64, kPositions = 1024, kManyRows = 128, kBlockSize = 64;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds that `body` takes: the mean of its runs without the slowest tenth. A step does not
/// choose its moment either.
template <class Body>
double typical_seconds(double budget, const Body& body) {
  body();
  std::vector<double> times;
  for (const double end = seconds_now() + budget; times.size() < 3 || seconds_now() < end;) {
    const double start = seconds_now();
    body();
    times.push_back(seconds_now() - start);
  }
  std::sort(times.begin(), times.end());
  times.resize(times.size() - times.size() / 10);
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

/// Asks for lines ahead, as the hardware alone stops at each page.
[[gnu::target("avx2")]] std::uint64_t read_wide(const std::byte* from, std::size_t bytes) {
  __m256i sum = _mm256_setzero_si256(), other = sum;
  for (std::size_t at = 0; at < bytes; at += 64) {
    const auto* p = reinterpret_cast<const __m256i*>(from + at);
    _mm_prefetch(reinterpret_cast<const char*>(p) + 4096, _MM_HINT_T0);
    sum = _mm256_add_epi64(sum, _mm256_load_si256(p));
    other = _mm256_add_epi64(other, _mm256_load_si256(p + 1));
  }
  return static_cast<std::uint64_t>(_mm256_extract_epi64(_mm256_add_epi64(sum, other), 0));
}

std::uint64_t read_plainly(const std::byte* from, std::size_t bytes) {
  const auto* p = reinterpret_cast<const std::uint64_t*>(from);
  return std::accumulate(p, p + bytes / sizeof *p, std::uint64_t{0});
}

double read_bandwidth(ThreadPool& pool, CpuFamily family) {
  constexpr std::size_t kPart = 32u << 20;
  Buffer buffer = Buffer::in_huge_pages(kReadBytes);
  std::memset(buffer.data(), 1, buffer.size());
  const auto read = family == CpuFamily::kBaseline ? read_plainly : read_wide;
  const auto pieces = static_cast<std::size_t>(pool.threads());
  const std::size_t piece = kPart / pieces / 64 * 64;
  std::vector<std::uint64_t> sums(pieces * 8);  // a cache line each
  std::size_t next = 0;
  const double seconds = typical_seconds(0.2, [&] {
    const std::byte* part = buffer.data() + next++ % (kReadBytes / kPart) * kPart;
    pool.on_each_thread([&](int thread) {
      const auto t = static_cast<std::size_t>(thread);
      sums[t * 8] += read(part + t * piece, piece);
    });
  });
  return static_cast<double>(pieces * piece) / seconds;
}

kernels::PackOptions plain_options(const HeldForm& form) {
  kernels::PackOptions options = form.options;
  options.slices = 1;
  return options;
}

/// A matrix of the kind of `form`, of our size.
Result<Weight> make_weight(Numerics numerics, const HeldForm& form, std::int64_t side) {
  kernels::StoredMatrix stored = form.stored;
  stored.n = stored.k = side;
  const auto numbers = static_cast<std::size_t>(side * side);
  std::vector<std::byte> codes(numbers * static_cast<std::size_t>(code_bits(stored.codes)) / 8);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 % 61);
  const std::vector<std::byte> scales(numbers * 4, std::byte{60});
  const std::vector<std::uint8_t> zeros(numbers, 7);
  if (stored.scales.data) stored.scales.data = scales.data();
  if (stored.scales.zeros) stored.scales.zeros = zeros.data();
  auto packer = kernels::WeightPacker::begin(numerics, stored, plain_options(form));
  if (!packer.ok()) return packer.error();
  packer->add(codes.data(), side);
  return packer->take();
}

/// Matrices of one kind, more than caches hold.
struct ProductBench {
  static Result<ProductBench> make(Stream& stream, const HeldForm& form, std::int64_t side) {
    ProductBench bench{stream, side, {}};
    for (std::size_t bytes = 0; bytes < kWeightBytes; bytes += bench.weights.back().bytes()) {
      auto weight = make_weight(stream.numerics(), form, side);
      if (!weight.ok()) return weight.error();
      bench.weights.push_back(std::move(*weight));
    }
    return bench;
  }

  double seconds(std::int64_t rows) const {
    std::vector<float> x(static_cast<std::size_t>(rows * side), 0.5f), y(x.size());
    std::size_t next = 0;
    return typical_seconds(kPointSeconds, [&] {
      const Weight& w = weights[next++ % weights.size()];
      Stream::Scope scope(stream);
      const auto in = kernels::prepare(stream, host_tensor(x.data(), DType::kF32, rows, side), w);
      kernels::linear(stream, w, in, host_tensor(y.data(), DType::kF32, rows, side));
    });
  }

  Stream& stream;
  std::int64_t side = 0;
  std::vector<Weight> weights;
};

Result<ProductSpeed> measure_product(Stream& stream, const HeldForm& form, ProductKind kind) {
  const auto bench = ProductBench::make(stream, form, kSide);
  if (!bench.ok()) return bench.error();
  ProductSpeed speed{kind, {}};
  for (const std::int64_t rows : kRows)
    speed.points.push_back(
        {static_cast<double>(rows), bench->seconds(rows) / static_cast<double>(kSide * kSide)});
  return speed;
}

/// What an op takes that has next to nothing to do but asks all threads.
double call_seconds(ThreadPool& pool) {
  std::vector<float> sums(static_cast<std::size_t>(pool.threads()) * 16);
  return typical_seconds(kPointSeconds, [&] {
    pool.on_each_thread([&](int thread) { sums[static_cast<std::size_t>(thread) * 16] += 1; });
  });
}

/// What a matrix takes beside its bytes and the call: what a small one takes longer than its share
/// of a large one.
Result<double> matrix_seconds(Stream& stream, const HeldForm& form, const ProductSpeed& large,
                              double call_s) {
  const auto bench = ProductBench::make(stream, form, kSmallSide);
  if (!bench.ok()) return bench.error();
  const double share =
      large.points.front().element_s * static_cast<double>(kSmallSide * kSmallSide);
  return std::max(0.0, bench->seconds(1) - share - call_s);
}

/// A cache of some sequences, and what attends to it.
struct AttentionBench {
  AttentionBench(Stream& s, const AttentionSpec& spec, std::int64_t sequences)
      : stream(s), a(spec) {
    const std::int64_t blocks = kPositions / kBlockSize;
    keys = pool(key_bytes, std::int64_t{a.kv_heads} * a.qk_dim, sequences);
    const bool latent = a.kind == AttentionKind::kMla;
    values = latent ? keys : pool(value_bytes, std::int64_t{a.kv_heads} * a.v_dim, sequences);
    tables.resize(static_cast<std::size_t>(sequences));
    for (std::int64_t s = 0; s < sequences; ++s)
      for (std::int64_t b = 0; b < blocks; ++b)
        tables[static_cast<std::size_t>(s)].push_back(static_cast<std::int32_t>(s * blocks + b));
  }

  /// Seconds for `rows` of each sequence, the last of which sees `positions`.
  double seconds(std::int64_t rows, std::int64_t positions) const {
    std::vector<const std::int32_t*> of_row;
    std::vector<std::int32_t> at;
    for (const auto& table : tables)
      for (std::int64_t r = 0; r < rows; ++r) {
        of_row.push_back(table.data());
        at.push_back(static_cast<std::int32_t>(positions - rows + r));
      }
    const auto all = static_cast<std::int64_t>(at.size());
    std::vector<float> q(static_cast<std::size_t>(all * a.heads * a.qk_dim), 0.01f);
    std::vector<float> out(static_cast<std::size_t>(all * a.heads * a.v_dim));
    const Tensor x = host_tensor(q.data(), DType::kF32, all, a.heads * a.qk_dim).split(a.heads);
    const Tensor y = host_tensor(out.data(), DType::kF32, all, a.heads * a.v_dim).split(a.heads);
    kernels::AttentionInputs in;
    in.keys = keys;
    in.values = values;
    in.kv_heads = a.kv_heads;
    in.scale = a.scale;
    return typical_seconds(2 * kPointSeconds, [&] {
      kernels::attention(stream, in, {of_row.data(), at.data()}, x, y);
    });
  }

  /// One row of each sequence: from few positions and many.
  AttentionSpeed one_row() const {
    const double few_s = seconds(1, kFewPositions), many_s = seconds(1, kPositions);
    const double position_s =
        std::max(many_s - few_s, many_s / 2) / static_cast<double>(kPositions - kFewPositions);
    const double more = few_s / position_s - static_cast<double>(kFewPositions);
    return {operations(static_cast<double>(tables.size())) / position_s, std::max(0.0, more)};
  }
  /// Many rows of one sequence.
  AttentionSpeed prompt() const {
    const double pairs = static_cast<double>(kManyRows * (2 * kPositions - kManyRows + 1)) / 2;
    return {operations(pairs) / seconds(kManyRows, kPositions), 0};
  }

 private:
  double operations(double pairs) const { return 2 * pairs * a.heads * (a.qk_dim + a.v_dim); }

  kernels::KvPool pool(Buffer& bytes, std::int64_t row, std::int64_t sequences) const {
    const DType type = kv_type(stream.numerics());
    bytes = Buffer::in_huge_pages(static_cast<std::size_t>(sequences * kPositions * row) *
                                  dtype_size(type));
    std::memset(bytes.data(), 0x3c, bytes.size());
    return {bytes.data(), type, kBlockSize, row};
  }

  Stream& stream;
  const AttentionSpec& a;
  Buffer key_bytes, value_bytes;
  kernels::KvPool keys, values;
  std::vector<std::vector<std::int32_t>> tables;  // of each sequence
};

/// Of each number of a matrix.
double product_bytes(Numerics numerics, const HeldForm& form) {
  kernels::StoredMatrix stored = form.stored;
  stored.n = stored.k = kSide;
  return static_cast<double>(kernels::packed_bytes(numerics, stored, plain_options(form))) /
         static_cast<double>(kSide * kSide);
}

/// One form of each kind of product that the model has.
std::map<ProductKind, HeldForm> kinds_of(const ModelSpec& spec, Numerics numerics) {
  std::map<ProductKind, HeldForm> kinds;
  const auto look = [&](const std::vector<WeightSpec>& weights, const AttentionSpec& attention) {
    for (const WeightSpec& w : weights) {
      if (w.precision == Precision::kVector || w.precision == Precision::kRows) continue;
      for (const HeldForm& form : held_forms(w, attention, numerics))
        kinds.try_emplace(product_kind(form, numerics), form);
    }
  };
  for (const LayerSpec& layer : spec.layers) {
    look(layer.weights, layer.attention);
    look(layer.expert, layer.attention);
  }
  look(spec.last, {});
  return kinds;
}

}  // namespace

Result<MeasuredDevice> measure_machine(const ModelSpec& spec, Numerics numerics, int threads) {
  const CpuFamily family = supported_cpu_families().back();
  const std::vector<Numerics> can = numerics_of(family);
  if (std::find(can.begin(), can.end(), numerics) == can.end())
    return invalid_argument("--measure: this processor has no instructions for the numerics " +
                            std::string(to_string(numerics)) + "; it has " + in_words(can) + ".");
  try {
    const FloatMode mode;
    ThreadPool pool(threads);
    Stream stream({numerics, family, &pool});
    MeasuredDevice measured;
    DeviceSpeed& m = measured.device_speed;
    m.ceilings.memory = read_bandwidth(pool, family);
    double best = 0;
    const auto kinds = kinds_of(spec, numerics);
    for (const auto& [kind, form] : kinds) {
      auto product = measure_product(stream, form, kind);
      if (!product.ok()) return product.error();
      // What a product does is no more than what can be done.
      for (const auto& p : product->points) {
        best = std::max(best, (kind.full_precision ? 4 : 2) * p.rows / p.element_s);
        m.ceilings.memory =
            std::max(m.ceilings.memory, product_bytes(numerics, form) / p.element_s);
      }
      m.products.push_back(std::move(*product));
    }
    m.ceilings.bf16 = m.ceilings.fma = best;
    const AttentionSpec& attention = spec.layers.front().attention;
    const AttentionBench one(stream, attention, 1);
    m.attention_one = one.one_row();
    m.attention_prompt = one.prompt();
    m.attention_batch =
        AttentionBench(stream, attention, static_cast<std::int64_t>(kAttentionBatch)).one_row();
    m.efficiency.call_s = call_seconds(pool);
    const auto matrix_s =
        matrix_seconds(stream, kinds.begin()->second, m.products.front(), m.efficiency.call_s);
    if (!matrix_s.ok()) return matrix_s.error();
    m.efficiency.matrix_s = *matrix_s;
    m.efficiency.hop_s = kCpuHopSeconds;
    return measured;
  } catch (const std::bad_alloc&) {
    return resource_exhausted("--measure needs about 1 GiB of memory, and there is not so much.");
  }
}

}  // namespace troupe
