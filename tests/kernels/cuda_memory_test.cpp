/// What the CUDA back-end's ops do in global memory: offsets beyond 32 bits, and CTAs that get into
/// each other's way. Each check has a kernel that it finds.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <new>

#include "kernels/cuda/math.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/twin/backend.h"
#include "kernels/cuda/twin/twin.h"
#include "op_menu.h"
#include "runtime/float_mode.h"

namespace troupe::kernels::cuda_twin {
namespace {

/// Addresses; pages come when they are touched.
class Addresses {
 public:
  explicit Addresses(std::size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE_MESSAGE(at != MAP_FAILED, "no addresses; is vm.overcommit_memory 2?");
    data_ = static_cast<std::byte*>(at);
  }
  ~Addresses() { munmap(data_, bytes_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  std::byte* take(std::size_t bytes) {
    std::byte* at = data_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > bytes_) std::__throw_bad_alloc();
    return at;
  }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_, used_ = 0;
  std::byte* data_ = nullptr;
};

/// Everything side by side.
class Dense : public Places {
 public:
  explicit Dense(Addresses& memory) : memory_(memory) {}
  std::byte* take(std::size_t bytes) override { return memory_.take(bytes); }
  std::int32_t block(std::int32_t i, std::int64_t) override { return i; }

 protected:
  std::int64_t row_stride(std::int64_t dense) override { return dense; }

 private:
  Addresses& memory_;
};

/// Rows more than 2^31 numbers apart, and a cache's blocks more than 2^32 bytes.
class Sparse : public Dense {
 public:
  using Dense::Dense;
  std::int32_t block(std::int32_t i, std::int64_t block_bytes) override {
    return i + static_cast<std::int32_t>((std::int64_t{9} << 30) / block_bytes) * (i % 3);
  }

 protected:
  std::int64_t row_stride(std::int64_t) override { return (std::int64_t{1} << 31) + 64; }
};

constexpr std::size_t kMany = std::size_t{1} << 20;
constexpr std::size_t kSparseBytes = kMany << 20, kDenseBytes = 5 * kMany;

/// What is asked for every op: CUDA cores, one way and the other, and tensor cores.
struct Way {
  const Backend* backend;
  Numerics numerics;
};
std::vector<Way> ways() {
  return {{cuda_twin_backend(), Numerics::kBf16},
          {cuda_plain_twin_backend(), Numerics::kBf16},
          {cuda_twin_backend(), Numerics::kCudaMma}};
}
std::string to_string(const Way& way) {
  return std::string(way.backend->name) + ", " + std::string(troupe::to_string(way.numerics));
}

std::vector<std::byte> dense_answer(const MenuOp& op, const Way& way) {
  Addresses memory(kDenseBytes);
  Dense places(memory);
  Stream stream({.numerics = way.numerics, .backend = way.backend});
  return gathered(op.run(stream, places));
}

TEST_CASE("ops reach what lies beyond 32 bits") {
  const FloatMode mode;
  for (const Way& way : ways())
    for (const MenuOp& op : op_menu()) {
      INFO(to_string(way) << ": " << op.name);
      Addresses memory(kSparseBytes);
      Sparse places(memory);
      Stream stream({.numerics = way.numerics, .backend = way.backend});
      CHECK(gathered(op.run(stream, places)) == dense_answer(op, way));
    }
}

/// A weight whose panels lie far apart, as those of a large one do.
TEST_CASE("products reach panels beyond 32 bits") {
  const FloatMode mode;
  Addresses memory(kSparseBytes);
  Dense places(memory);
  constexpr std::int64_t kApart = (std::int64_t{5} << 30) + 64, kPanels = 3, kBlocks = 2;
  for (const auto& [multiply, numerics] : {std::pair{&fast_products, Numerics::kBf16},
                                           {&plain_products, Numerics::kBf16},
                                           {&mma_products, Numerics::kCudaMma}}) {
    Stream stream({.numerics = numerics, .backend = cuda_twin_backend()});
    std::vector<std::vector<std::byte>> answers;
    for (const bool far : {false, true}) {
      Products p;
      p.layout.slices = 1;
      p.layout.blocks = kBlocks;
      p.layout.slice_k = p.layout.k = kBlocks * 32;
      p.layout.panels = kPanels;
      p.layout.n = kPanels * 32;
      p.layout.block_bytes = 32 * 32 * 2;
      p.layout.part_bytes = p.layout.scales_at = p.layout.zeros_at = kBlocks * p.layout.block_bytes;
      p.layout.panel_bytes = far ? kApart : p.layout.part_bytes;
      p.count = 1;
      ProductItem item;
      std::byte* panels = places.take(static_cast<std::size_t>(kPanels * p.layout.panel_bytes));
      for (std::int64_t panel = 0; panel < kPanels; ++panel)
        for (std::int64_t i = 0; i < p.layout.part_bytes; i += 2) {
          const auto code = static_cast<std::uint16_t>(0x3c00 + (i * 7 + panel * 31) % 511);
          std::memcpy(panels + panel * p.layout.panel_bytes + i, &code, 2);
        }
      item.panels = panels;
      const Tensor x = places.tensor(DType::kBf16, 1, 1, p.layout.k);
      for (std::int64_t i = 0; i < p.layout.k; ++i)
        static_cast<std::uint16_t*>(x.data)[i] = static_cast<std::uint16_t>(0x3f80 + i);
      const Tensor y = places.tensor(DType::kF32, 1, 1, p.layout.n);
      item.x = static_cast<const std::byte*>(x.data);
      item.y = static_cast<std::byte*>(y.data);
      item.rows = 1;
      p.items = &item;
      multiply(stream, p);
      answers.push_back(gathered(y));
    }
    CHECK(answers[0] == answers[1]);
  }
}

/// A copy whose offsets are counted in 32 bits.
struct NarrowCopy {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  Tensor x, y;

  void operator()(Cta& cta) const {
    const auto row = static_cast<std::uint32_t>(cta.block_x());
    const std::uint32_t at = row * static_cast<std::uint32_t>(x.row_stride);
    static_cast<float*>(y.data)[cta.block_x() * y.row_stride + cta.thread()] =
        static_cast<const float*>(x.data)[at + static_cast<std::uint32_t>(cta.thread())];
  }
};

TEST_CASE("offsets of 32 bits are found") {
  const FloatMode mode;
  const auto copied = [](Places& places) {
    const Tensor x = places.tensor(DType::kF32, 3, 1, 32), y = places.tensor(DType::kF32, 3, 1, 32);
    const NarrowCopy kernel{x, y};
    CHECK(Twin(nullptr, 1).run(program_of(kernel), {3}).empty());
    return gathered(x) == gathered(y);
  };
  Addresses near(kDenseBytes), far(kSparseBytes);
  Dense dense(near);
  Sparse sparse(far);
  CHECK(copied(dense));
  CHECK_FALSE(copied(sparse));
}

/// Where a watched stream's scratch comes from.
Addresses* scratch = nullptr;
std::shared_ptr<std::byte> watched_memory(std::size_t bytes) {
  return {scratch->take(bytes), [](std::byte*) {}};
}

TEST_CASE("CTAs of an op keep out of each other's way in global memory") {
  const FloatMode mode;
  for (const Way& way : ways())
    for (const MenuOp& op : op_menu()) {
      INFO(to_string(way) << ": " << op.name);
      Addresses memory(kDenseBytes);
      scratch = &memory;
      Backend watched = *way.backend;
      watched.memory = watched_memory;
      Stream stream({.numerics = way.numerics, .backend = &watched});
      static_cast<Twin*>(stream.device())->watch(memory.data(), memory.bytes());
      Dense places(memory);
      CHECK(gathered(op.run(stream, places)) == dense_answer(op, way));
    }
}

/// Two ways to get into each other's way.
enum class Wrong { kNot, kSameWord, kNeighbour };

struct Neighbours {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  float* y;  ///< [CTAs, threads], ones before
  Wrong wrong;

  void operator()(Cta& cta) const {
    float* mine = y + cta.block_x() * kThreads + cta.thread();
    const float* other = y + (cta.block_x() ^ 1) * kThreads + cta.thread();
    *mine = (wrong == Wrong::kNeighbour ? *other : *mine) + 1 + static_cast<float>(cta.block_x());
    if (wrong == Wrong::kSameWord && cta.thread() == 0) y[0] = 7;
  }
};

TEST_CASE("CTAs that write the same word, or read what another writes, are found") {
  const FloatMode mode;
  const auto run = [](Wrong wrong, bool watched, std::uint64_t seed, std::vector<float>& y) {
    y.assign(4 * Neighbours::kThreads, 1.0f);
    Twin twin(nullptr, seed);
    if (watched) twin.watch(reinterpret_cast<std::byte*>(y.data()), y.size() * sizeof(float));
    const Neighbours kernel{y.data(), wrong};
    return twin.run(program_of(kernel), {4});
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> y, watched;
    CHECK(run(Wrong::kNot, false, seed, y).empty());
    CHECK(run(Wrong::kNot, true, seed, watched).empty());
    CHECK(y == watched);
    CHECK(run(Wrong::kSameWord, true, seed, y).find("write the same four bytes") !=
          std::string::npos);
    CHECK(run(Wrong::kNeighbour, false, seed, y).empty());
    CHECK(run(Wrong::kNeighbour, true, seed, watched).empty());
    CHECK(y != watched);
  }
}

/// CTAs come to a word; the last adds what each wrote, before it came or behind that.
struct Joined {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  float* y;  ///< [CTAs + 1, threads], zeros before; behind them the word
  bool late;

  void operator()(Cta& cta) const {
    float* mine = y + cta.block_x() * kThreads + cta.thread();
    auto* came = reinterpret_cast<std::uint32_t*>(y + 5 * kThreads);
    if (!late) *mine = 1 + static_cast<float>(cta.block_x());
    const bool last = cta.last_of(came, 4);
    if (late) *mine = 1 + static_cast<float>(cta.block_x());
    if (!last) return;
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += cta.load_joined(y + i * kThreads + cta.thread());
    y[4 * kThreads + cta.thread()] = sum;
  }
};

TEST_CASE("the last CTA sees what the others wrote before they came, and nothing behind that") {
  const FloatMode mode;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const bool late : {false, true}) {
      std::vector<float> y(5 * Joined::kThreads + 1);
      Twin twin(nullptr, seed);
      twin.watch(reinterpret_cast<std::byte*>(y.data()), y.size() * sizeof(float));
      const Joined kernel{y.data(), late};
      CHECK(twin.run(program_of(kernel), {4}).empty());
      CHECK(y[0] == 1);
      CHECK(y[3 * Joined::kThreads] == 4);
      CHECK((y[4 * Joined::kThreads] == 10) == !late);
      CHECK(y.back() == 0);
    }
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
