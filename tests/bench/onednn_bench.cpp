/// The peak of another's products: oneDNN's bf16, weights packed as it likes them best. Lines as
/// kernels_bench prints them.
///
///     OMP_NUM_THREADS=2 onednn_bench N K ROWS...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

using namespace dnnl;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Best seconds of y [rows, n] float32 = x [rows, k] bf16 * W [k, n] bf16, over so many different
/// weights that no cache holds them all.
double best_time(const engine& cpu, stream& s, memory::dim rows, memory::dim n, memory::dim k) {
  using Tag = memory::format_tag;
  using Type = memory::data_type;
  const memory::desc x_desc({rows, k}, Type::bf16, Tag::ab), y_desc({rows, n}, Type::f32, Tag::ab),
      w_desc({k, n}, Type::bf16, Tag::any);
  const matmul::primitive_desc made(matmul::desc(x_desc, w_desc, y_desc), cpu);
  matmul product(made);
  memory x(x_desc, cpu), y(y_desc, cpu);
  std::vector<memory> weights;
  const auto bytes = made.weights_desc().get_size();
  for (std::size_t all = 0; all < (256u << 20); all += bytes) {
    weights.emplace_back(made.weights_desc(), cpu);
    std::fill_n(static_cast<unsigned short*>(weights.back().get_data_handle()), bytes / 2, 0x3c00);
  }
  std::fill_n(static_cast<unsigned short*>(x.get_data_handle()), rows * k, 0x3c00);
  double best = 1e9;
  std::size_t next = 0;
  for (const double end = seconds() + 0.5; seconds() < end;) {
    const double start = seconds();
    product.execute(s, {{DNNL_ARG_SRC, x},
                        {DNNL_ARG_WEIGHTS, weights[next++ % weights.size()]},
                        {DNNL_ARG_DST, y}});
    s.wait();
    best = std::min(best, seconds() - start);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: onednn_bench N K ROWS...\n");
    return 2;
  }
  const memory::dim n = std::atol(argv[1]), k = std::atol(argv[2]);
  engine cpu(engine::kind::cpu, 0);
  stream s(cpu);
  for (int i = 3; i < argc; ++i) {
    const memory::dim rows = std::atol(argv[i]);
    const double time = best_time(cpu, s, rows, n, k);
    std::printf("  %-12s %5ld x %5ld  rows %4ld  %9.1f us  %8.1f GFLOP/s\n", "bf16",
                static_cast<long>(n), static_cast<long>(k), static_cast<long>(rows), time * 1e6,
                2e-9 * static_cast<double>(n * k * rows) / time);
  }
}
