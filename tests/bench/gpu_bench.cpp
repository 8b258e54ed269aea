/// Prints the speed of the CUDA back-end's kernels beside the ceilings of the device, a row a line
/// of JSON, as soon as it is known. Inputs are larger than the cache, or take turns. Not a test.
///
///     build/tests/bench/gpu_bench [--small] [--only WORDS]   on a GPU; rows whose names have WORDS
///     build/tests/bench/gpu_bench_twin --small      on the twin: shows that it runs, and no more
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "runtime/float_mode.h"
#include "tests/bench/gpu_clock.h"
#include "tests/bench/gpu_layer.h"
#include "tests/bench/timing.h"

using namespace troupe;
using namespace troupe::timing;
using namespace troupe::kernels;

namespace {

constexpr int kRuns = 21, kRunsMin = 3;
constexpr double kBudgetS = 2;  ///< of a row

struct Row {
  std::string name, unit;
  double value = 0, ceiling = 0;
  const char* of = "copy";
  double needs = 0;       ///< the least of value / ceiling, or of the value if there is no ceiling
  double at_most = 0;     ///< of the value
  std::string plan = {};  ///< what `troupe plan` makes of it, as JSON
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? ' ' : c;
  }
  return out + '"';
}

void print(const Row& row) {
  std::printf("{\"row\": %s, \"value\": %.6g, \"unit\": %s", quoted(row.name).c_str(), row.value,
              quoted(row.unit).c_str());
  if (row.ceiling > 0)
    std::printf(", \"ratio\": %.4f, \"of\": \"%s\"", row.value / row.ceiling, row.of);
  if (row.needs > 0) std::printf(", \"needs\": %.3g", row.needs);
  if (row.at_most > 0) std::printf(", \"at_most\": %.3g", row.at_most);
  if (!row.plan.empty()) std::printf(", \"plan\": {%s}", row.plan.c_str());
  std::printf("}\n");
  std::fflush(stdout);
}

void print_missing(const std::string& name, const std::string& why) {
  std::printf("{\"row\": %s, \"not_measured\": %s}\n", quoted(name).c_str(), quoted(why).c_str());
  std::fflush(stdout);
}

/// The median of the device's times. `in_a_row`: bodies of a measurement, of which each has inputs
/// of its own, as a step has one layer after the other; what is between two events costs more than
/// what is between two kernels.
template <class Body>
double median_time(Accelerator& device, const Body& once, int in_a_row = 1) {
  const auto body = [&] {
    for (int i = 0; i < in_a_row; ++i) once();
  };
  for (int i = 0; i < 2; ++i) device_seconds(device, body);  // code is loaded
  std::vector<double> times;
  const double start = seconds();
  while (static_cast<int>(times.size()) < kRuns &&
         (static_cast<int>(times.size()) < kRunsMin || seconds() - start < kBudgetS))
    times.push_back(device_seconds(device, body));
  std::ranges::sort(times);
  return times[times.size() / 2] / in_a_row;
}

/// The numerics whose bars are those of tensor cores; the others are bound by arithmetic there.
constexpr std::string_view kByTensorCores = "cuda_mma";
/// Kernels and copies of a layer that no graph holds: each costs the host microseconds.
constexpr double kLaunchesOutsideMax = 8;

struct Bench {
  Stream& stream;
  std::string_view numerics;
  bool small;
  double copy = 0, matmul = 0;

  std::string name(const std::string& row) const { return std::string(numerics) + ": " + row; }
  double needs(double of_tensor_cores) const {
    return numerics == kByTensorCores ? of_tensor_cores : 0;
  }
};

/// A product's part of the file that `troupe plan --measured` takes.
std::string plan_of_product(std::string_view numerics, std::string_view codes, std::int64_t rows,
                            double element_s) {
  char text[160];
  std::snprintf(text, sizeof text,
                "\"numerics\": \"%.*s\", \"codes\": \"%.*s\", \"rows\": %lld, "
                "\"element_s\": %.6g",
                static_cast<int>(numerics.size()), numerics.data(), static_cast<int>(codes.size()),
                codes.data(), static_cast<long long>(rows), element_s);
  return text;
}

/// The same of attention: operations a second.
std::string plan_of_attention(std::string_view numerics, std::string_view name, double rate) {
  char text[160];
  std::snprintf(text, sizeof text,
                "\"numerics\": \"%.*s\", \"attention\": \"%.*s\", \"rate\": %.6g",
                static_cast<int>(numerics.size()), numerics.data(), static_cast<int>(name.size()),
                name.data(), rate);
  return text;
}

/// A part of the names of rows that are wanted.
std::string only;

template <class Body>
void row_or_reason(const std::string& name, const Body& body) {
  if (name.find(only) == std::string::npos) return;
  try {
    body();
  } catch (const std::exception& error) {
    print_missing(name, error.what());
  }
}

struct Format {
  Codes codes;
  const char *name, *in_plan;
  double needs;
};
constexpr Format kFormats[] = {{Codes::kBf16, "bf16", "bf16", 0.8},
                               {Codes::kFp8, "FP8", "fp8", 0},
                               {Codes::kInt4, "int4", "int4", 0}};

constexpr int kProductsInARow = 8;

/// y = x W^T at decode: bound by reading W.
void decode_product(const Bench& b, const Format& format, std::int64_t rows) {
  const std::string name =
      b.name(std::string("decode product, ") + format.name + " weights, " + std::to_string(rows) +
             (rows == 1 ? " row" : " rows") + ", over copy");
  row_or_reason(name, [&] {
    Drawn drawn(b.stream);
    const std::int64_t n = b.small ? 64 : 7168, k = b.small ? 256 : 16384;
    std::vector<Weight> weights;  // as layers are: none of them stays in the cache
    for (std::size_t bytes = 0; bytes < 16 * bench_cache_bytes(); bytes += weights.back().bytes())
      weights.push_back(drawn.weight(format.codes, {n, k, {.slices = 8}}));
    const Tensor x = drawn.rows(DType::kF32, rows, k), y = drawn.rows(DType::kF32, rows, n);
    std::size_t next = 0;
    const double time = median_time(
        *b.stream.accelerator(),
        [&] {
          const Weight& w = weights[next++ % weights.size()];
          Stream::Scope scope(b.stream);
          linear(b.stream, w, prepare(b.stream, x, w), y);
        },
        kProductsInARow);
    const double speed = static_cast<double>(weights[0].bytes()) / time;
    const std::string plan = plan_of_product(
        b.numerics, format.in_plan, rows, time / (static_cast<double>(n) * static_cast<double>(k)));
    print({name, "GB/s", speed / 1e9, b.copy / 1e9, "copy", format.needs, 0, plan});
  });
}

/// 16 experts x 32 rows.
void expert_products(const Bench& b) {
  const std::string name = b.name("expert products, FP8, 16 experts x 32 rows, over copy");
  row_or_reason(name, [&] {
    Drawn drawn(b.stream);
    const LayerSizes s = b.small ? LayerSizes::small() : LayerSizes();
    std::vector<GatedMlp> experts(static_cast<std::size_t>(s.experts_here));
    double bytes = 0;
    for (GatedMlp& e : experts) {
      e.gate = drawn.weight(Codes::kFp8, {s.inner, s.hidden});
      e.up = drawn.weight(Codes::kFp8, {s.inner, s.hidden});
      e.down = drawn.weight(Codes::kFp8, {s.hidden, s.inner, {.slices = sum_slices(s.inner)}});
      bytes += static_cast<double>(e.gate.bytes() + e.up.bytes() + e.down.bytes());
    }
    const std::int64_t all = s.experts_here * s.rows;
    const Tensor x = drawn.rows(DType::kBf16, all, s.hidden);
    const Tensor y = drawn.rows(DType::kBf16, all, s.hidden);
    std::vector<ExpertCall> calls;
    std::vector<const std::byte*> rows;
    std::vector<std::byte*> outputs;
    for (std::int64_t i = 0; i < all; ++i) {
      if (i % s.rows == 0)
        calls.push_back({&experts[static_cast<std::size_t>(i / s.rows)],
                         static_cast<std::int32_t>(i), static_cast<std::int32_t>(s.rows)});
      rows.push_back(static_cast<const std::byte*>(x.data) + i * s.hidden * 2);
      outputs.push_back(static_cast<std::byte*>(y.data) + i * s.hidden * 2);
    }
    const double time = median_time(*b.stream.accelerator(), [&] {
      expert_mlp(b.stream, calls, {}, rows.data(), outputs.data());
    });
    print({name, "GB/s", bytes / time / 1e9, b.copy / 1e9, "copy", b.needs(0.8)});
  });
}

/// MLA, absorbed: `rows` of each sequence at its end.
double time_of_attention(const Bench& b, const LayerSizes& s, std::int64_t sequences,
                         std::int64_t rows, std::int64_t context) {
  Drawn drawn(b.stream);
  const std::int64_t dim = s.kv_lora + s.rope;
  Cached cache(drawn, DType::kBf16, sequences, context, dim);
  const std::int64_t all = sequences * rows;
  const Tensor q = drawn.rows(DType::kF32, all, s.heads * dim).split(s.heads);
  const Tensor out = drawn.rows(DType::kF32, all, s.heads * s.kv_lora).split(s.heads);
  AttentionInputs in;
  in.keys = in.values = cache.pool;
  in.scale = 0.07f;
  const PagedRows where = cache.last(rows, context);
  return median_time(*b.stream.accelerator(), [&] { attention(b.stream, in, where, q, out); });
}

void decode_attention(const Bench& b) {
  const std::string name = b.name("MLA decode, 4,096 positions x 128 sequences, over copy");
  row_or_reason(name, [&] {
    const LayerSizes s = b.small ? LayerSizes::small() : LayerSizes();
    const std::int64_t sequences = b.small ? 2 : 128;
    const double time = time_of_attention(b, s, sequences, 1, s.context);
    const double bytes = static_cast<double>(sequences * s.context * (s.kv_lora + s.rope) * 2);
    const double pairs = static_cast<double>(sequences * s.context * s.heads);
    const double rate = 2 * pairs * static_cast<double>(2 * s.kv_lora + s.rope) / time;
    print({name, "GB/s", bytes / time / 1e9, b.copy / 1e9, "copy", b.needs(0.85), 0,
           plan_of_attention(b.numerics, "attention_batch", rate)});
  });
}

void prefill_attention(const Bench& b) {
  const std::string name = b.name("prefill attention, MLA absorbed, 8,192 positions");
  row_or_reason(name, [&] {
    const LayerSizes s = b.small ? LayerSizes::small() : LayerSizes();
    const std::int64_t rows = b.small ? 40 : 8192;
    const double time = time_of_attention(b, s, 1, rows, rows);
    const double pairs = 0.5 * static_cast<double>(rows * (rows + 1) * s.heads);
    const double operations = 2 * pairs * static_cast<double>(2 * s.kv_lora + s.rope);
    print({name, "TFLOP/s", operations / time / 1e12, 0, "", b.needs(250), 0,
           plan_of_attention(b.numerics, "attention_prompt", operations / time)});
  });
}

void layer(const Bench& b) {
  const std::string name = b.name("a V3 layer, batch 32, 16 experts here, over its roofline");
  row_or_reason(name, [&] {
    Drawn drawn(b.stream);
    V3Layer layer(b.stream, drawn, b.small ? LayerSizes::small() : LayerSizes());
    kernels::Accelerator& device = *b.stream.accelerator();
    const auto count = [&] {
      const kernels::GraphQueue::Counts before = device.counts();
      layer.run();
      device.wait();
      const kernels::GraphQueue::Counts& after = device.counts();
      const std::uint64_t launches = after.launches - before.launches;
      return std::pair(static_cast<double>(after.kernels - before.kernels),
                       static_cast<double>(launches - (after.graphs - before.graphs)));
    };
    for (int i = 0; i < 2; ++i) count();  // the third goes as a graph that is known
    const auto [kernels, outside] = count();
    print({b.name("kernels a layer"), "kernels", kernels, 0, "", 0});
    print({b.name("launches a layer outside graphs"), "launches", outside, 0, "", 0,
           kLaunchesOutsideMax});
    const double time = median_time(*b.stream.accelerator(), [&] { layer.run(); });
    const double by_memory = layer.bytes() / b.copy;
    const double bound =
        b.matmul > 0 ? std::max(by_memory, layer.operations() / b.matmul) : by_memory;
    print({name, "of the bound", bound / time, 1, "roofline", b.needs(0.7)});
  });
}

struct Ceilings {
  double copy = 0, matmul = 0;
};

Ceilings ceilings(bool small) {
  Ceilings c;
  row_or_reason("copy", [&] {
    c.copy = copy_ceiling(small ? 1u << 20 : 1u << 30).value;
    print({"copy", "GB/s", c.copy / 1e9, 0, "", 0});
  });
  row_or_reason("matmul, cuBLAS, bf16", [&] {
    const Ceiling matmul = matmul_ceiling(8192);
    if (!matmul.missing.empty()) return print_missing("matmul, cuBLAS, bf16", matmul.missing);
    c.matmul = matmul.value;
    print({"matmul, cuBLAS, bf16", "TFLOP/s", c.matmul / 1e12, 0, "", 0});
  });
  return c;
}

void rows_of(std::string_view numerics, const Backend* backend, Accelerator& device, bool small,
             const Ceilings& c) {
  const auto parsed = parse_numerics(numerics);
  if (!parsed)
    return print_missing(std::string(numerics) + ": all rows", "this build has no such numerics");
  Stream stream({.numerics = *parsed, .backend = backend, .accelerator = &device});
  const Bench b{stream, numerics, small, c.copy, c.matmul};
  for (const Format& format : kFormats)
    for (const std::int64_t rows : {1, 8}) decode_product(b, format, rows);
  expert_products(b);
  decode_attention(b);
  layer(b);
  prefill_attention(b);
}

}  // namespace

int main(int argc, char** argv) {
  set_float_mode();
  const Backend* backend = bench_backend();
  if (backend == nullptr) {
    std::fprintf(stderr, "gpu_bench: there is no device to measure\n");
    return 3;
  }
  bool small = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) small = true;
    if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
  }
  std::printf("{\"device\": %s}\n", quoted(bench_device()).c_str());
  const Ceilings c = ceilings(small);
  const auto device = backend->accelerator({.memory_bytes = bench_memory_bytes(small)});
  if (!device.ok()) {
    print_missing("all kernels", device.error().message);
    return 0;
  }
  rows_of("bf16", backend, **device, small, c);
  rows_of(kByTensorCores, backend, **device, small, c);
}
