/// What the twin of the CUDA back-end finds: each fault of a kernel, whatever the order of threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "kernels/cuda/math.h"
#include "kernels/cuda/twin/twin.h"
#include "kernels/known_answers.h"
#include "runtime/float_mode.h"
#include "support.h"

namespace troupe::kernels::cuda_twin {
namespace {

constexpr int kChunks = 3;

/// How a copy of the kernel is broken.
enum class Broken {
  kNot,
  kNoBarrier,      ///< sums are read before all have written theirs
  kWrongLane,      ///< a shuffle takes from lanes that are not there
  kStaleTile,      ///< the next chunk is written over one that others still read
  kNotAll,         ///< one warp does not come to a barrier
  kUnwritten,      ///< reads what nobody has written
  kOutside,        ///< writes past the end
  kMisaligned,     ///< loads sixteen bytes from anywhere
  kDiffersBySite,  ///< half of the threads wait at another barrier
};

/// The form of the fast product: chunks go to shared memory, threads meet, each sums what all
/// have brought, warps add up by shuffles. y[t] = the sum of x, for each thread.
struct Sum {
  static constexpr int kThreads = 64;
  static constexpr std::size_t kSharedBytes = (kThreads + 2) * sizeof(float);
  static constexpr bool kMeets = true;

  const float* x;  ///< [kChunks, kThreads]
  float* y;        ///< [kThreads]
  Broken broken;

  void operator()(Cta& cta) const {
    const Shared<float> tile = cta.shared<float>(0, kThreads);
    const Shared<float> of_warp = cta.shared<float>(kThreads * sizeof(float), 2);
    float sum = 0;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      tile[cta.thread()] = x[chunk * kThreads + cta.thread()];
      if (broken != Broken::kNoBarrier) meet(cta);
      const int half = kThreads / 2;
      float pair = tile[cta.thread() % half] + tile[cta.thread() % half + half];
      for (int apart = 16; apart > 0; apart /= 2) {
        const int from = broken == Broken::kWrongLane ? cta.lane() + apart : cta.lane() ^ apart;
        pair = pair + cta.shuffle(0xffffffffu, pair, from);
      }
      sum = sum + pair;
      if (broken != Broken::kStaleTile) cta.sync();
    }
    if (broken == Broken::kOutside) of_warp[2 + cta.warp()] = sum;
    if (cta.lane() == 0 && broken != Broken::kUnwritten) of_warp[cta.warp()] = sum;
    if (broken == Broken::kNotAll && cta.warp() == 1) return;
    cta.sync();
    if (broken == Broken::kMisaligned) cta.load_quad(reinterpret_cast<const char*>(x) + 4);
    y[cta.thread()] = of_warp[cta.warp()];
  }

  void meet(Cta& cta) const {
    if (broken == Broken::kDiffersBySite && cta.warp() == 1) return cta.sync();
    cta.sync();
  }
};

struct Outcome {
  std::string finding;
  bool right = true;
};

Outcome run(Broken broken, std::uint64_t seed, ThreadPool* pool = nullptr) {
  const FloatMode mode;
  alignas(16) float x[kChunks * Sum::kThreads + 4];
  float expected = 0;
  for (int i = 0; i < kChunks * Sum::kThreads; ++i)
    expected += x[i] = static_cast<float>(i % 7 + 1);
  float y[Sum::kThreads] = {};
  Twin twin(pool, seed);
  const Sum kernel{x, y, broken};
  Outcome out{twin.run(program_of(kernel), {}), true};
  for (const float value : y) out.right = out.right && value == expected;
  return out;
}

bool says(const std::string& finding, const char* what) {
  return finding.find(what) != std::string::npos;
}

TEST_CASE("a kernel that is right is found right, in any order") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Outcome out = run(Broken::kNot, seed);
    CHECK(out.finding.empty());
    CHECK(out.right);
  }
}

TEST_CASE("what a broken kernel does is found, whatever the seed") {
  const std::pair<Broken, const char*> kFaults[] = {
      {Broken::kNoBarrier, "of shared memory, which"},
      {Broken::kWrongLane, "which the mask does not name"},
      {Broken::kStaleTile, "since the last barrier"},
      {Broken::kNotAll, "threads wait for others that never come: thread"},
      {Broken::kUnwritten, "which nobody has written"},
      {Broken::kOutside, "of 264 of shared memory"},
      {Broken::kMisaligned, "loads 16 bytes at once"},
      {Broken::kDiffersBySite, "waits at the barrier cuda_twin_test.cpp"},
  };
  for (const auto& [broken, what] : kFaults)
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const std::string finding = run(broken, seed).finding;
      INFO("fault " << static_cast<int>(broken) << " seed " << seed << ": " << finding);
      CHECK(says(finding, what));
    }
}

/// Threads that were said to run alone.
struct Alone {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 4;
  static constexpr bool kMeets = false;

  int what;

  void operator()(Cta& cta) const {
    if (what == 0) cta.sync();
    if (what == 1) cta.shuffle(0xffffffffu, 1, 0);
    if (what == 2) cta.shared<float>(0, 1);
  }
};

TEST_CASE("threads that are said to run alone may not meet") {
  const FloatMode mode;
  for (const int what : {0, 1, 2, 3}) {
    const Alone kernel{what};
    CHECK(Twin(nullptr, 1).run(program_of(kernel), {}).empty() == (what == 3));
  }
}

/// Tells in which order CTAs and threads came.
struct Order {
  static constexpr int kThreads = 4;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  std::vector<std::int64_t>* order;

  void operator()(Cta& cta) const {
    order->push_back((cta.block_y() * 3 + cta.block_x()) * kThreads + cta.thread());
  }
};

TEST_CASE("a seed is an order of CTAs and threads, and all of them come") {
  const FloatMode mode;
  const auto order_of = [](std::uint64_t seed) {
    std::vector<std::int64_t> order;
    const Order kernel{&order};
    CHECK(Twin(nullptr, seed).run(program_of(kernel), {3, 2}).empty());
    return order;
  };
  std::vector<std::int64_t> one = order_of(1);
  CHECK(one == order_of(1));
  CHECK(one != order_of(2));
  std::sort(one.begin(), one.end());
  for (std::size_t i = 0; i < 24; ++i) CHECK(one[i] == static_cast<std::int64_t>(i));
}

/// A CTA tells its neighbour that it has come, and waits until that has.
struct Meeting {
  static constexpr int kThreads = 64;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  std::uint32_t* came;  ///< [CTAs]
  bool nobody_tells = false;

  void operator()(Cta& cta) const {
    if (cta.thread() == 0 && !nobody_tells)
      __atomic_store_n(came + cta.block_x(), 1u, __ATOMIC_RELEASE);
    if (cta.warp() == 1)
      while (cta.poll(came + (cta.block_x() ^ 1)) == 0) {
      }
    cta.sync();
  }
};

std::string run_meeting(std::int64_t ctas, int resident, std::uint64_t seed,
                        bool nobody_tells = false, ThreadPool* pool = nullptr) {
  const FloatMode mode;
  std::vector<std::uint32_t> came(static_cast<std::size_t>(ctas));
  Twin twin(pool, seed);
  twin.keep_resident(resident);
  const Meeting kernel{came.data(), nobody_tells};
  return twin.run(program_of(kernel), {ctas});
}

TEST_CASE("CTAs that wait for each other go on if they are resident, and else are found") {
  constexpr const char* kNotResident = "for a CTA that is not resident";
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string alone = run_meeting(2, 1, seed);
    INFO("seed " << seed << ": " << alone);
    CHECK(says(alone, "waits at cuda_twin_test.cpp:"));
    CHECK(says(alone, kNotResident));
    CHECK(run_meeting(2, 2, seed).empty());
    CHECK(run_meeting(16, 16, seed).empty());
    CHECK(says(run_meeting(2, 2, seed, true), "for what no CTA brings"));
  }
}

TEST_CASE("a seed says how many CTAs are resident: one, two, or many") {
  int found = 0, passed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    ++(run_meeting(2, 0, seed).empty() ? passed : found);
  CHECK(found >= 10);
  CHECK(passed >= 20);
  found = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) found += run_meeting(64, 0, seed).empty() ? 0 : 1;
  CHECK(found >= 50);  // pairs of 64 that are two of 24 at a time are rare
}

TEST_CASE("multiprocessors that wait for each other's CTAs do not give up") {
  ThreadPool pool(2);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(run_meeting(2, 2, seed, false, &pool).empty());
    // Where one of them is slow, its only CTA may be the last of all.
    const std::string found = run_meeting(40, 1, seed, true, &pool);
    INFO("seed " << seed << ": " << found);
    CHECK((says(found, "for a CTA that is not resident") || says(found, "for what no CTA brings")));
  }
}

/// Each CTA notes what the twin tells of its progress.
struct Noting {
  static constexpr int kThreads = 1;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  const Twin* twin;
  std::uint64_t* noted;  ///< [CTAs]

  void operator()(Cta& cta) const { noted[cta.block_x()] = twin->progress(); }
};

TEST_CASE("a kernel that goes on shows progress before it ends, with each of its CTAs") {
  const FloatMode mode;
  Twin twin(nullptr, 1);
  std::vector<std::uint64_t> noted(8);
  const Noting kernel{&twin, noted.data()};
  CHECK(twin.run(program_of(kernel), {8}).empty());
  std::sort(noted.begin(), noted.end());
  CHECK(std::adjacent_find(noted.begin(), noted.end()) == noted.end());
  CHECK(twin.progress() > noted.back());
}

/// CTAs add one after the other what each has brought: the last of them does it for all.
struct Joining {
  static constexpr int kThreads = 64;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  std::uint32_t* came;
  std::uint32_t ctas;
  float* brought;  ///< [CTAs, threads]
  float* sums;     ///< [threads]
  bool awaited = true;

  void operator()(Cta& cta) const {
    brought[cta.block_x() * kThreads + cta.thread()] =
        1.0f / static_cast<float>(1 + cta.block_x() + cta.thread());
    if (awaited ? !cta.last_of(came, ctas) : cta.block_x() + 1 < ctas) return;
    float sum = 0;
    for (std::uint32_t i = 0; i < ctas; ++i)
      sum = sum + cta.load_joined(brought + i * kThreads + cta.thread());
    sums[cta.thread()] = sum;
  }
};

TEST_CASE("the last of the CTAs that come to a word sees what all of them brought") {
  const FloatMode mode;
  constexpr std::int64_t kCtas = 40;
  std::vector<float> right;
  for (int thread = 0; thread < Joining::kThreads; ++thread) {
    float sum = 0;
    for (int cta = 0; cta < kCtas; ++cta) sum += 1.0f / static_cast<float>(1 + cta + thread);
    right.push_back(sum);
  }
  ThreadPool pool(2);
  std::uint32_t came = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> brought(kCtas * Joining::kThreads), sums(Joining::kThreads);
    Joining kernel{&came, kCtas, brought.data(), sums.data()};
    CHECK(Twin(seed % 2 == 0 ? &pool : nullptr, seed).run(program_of(kernel), {kCtas}).empty());
    CHECK(sums == right);
    CHECK(came == 0);  // for the next launch
    kernel.awaited = false;
    CHECK(says(Twin(nullptr, seed).run(program_of(kernel), {kCtas}), "and is not their last"));
  }
  std::vector<float> brought(kCtas * Joining::kThreads), sums(Joining::kThreads);
  const Joining kernel{&came, kCtas, brought.data(), sums.data()};
  came = kCtas;
  CHECK(says(Twin(nullptr, 1).run(program_of(kernel), {1}), "to a word that holds 40"));
}

TEST_CASE("the order of CTAs and threads changes no answer") {
  const FloatMode mode;
  for (Family f : families())
    for (f.order_seed = 100; f.order_seed < 110; ++f.order_seed) {
      Stream stream(f.options(nullptr));
      for (std::size_t i = f.order_seed % 3; i < known_questions().size(); i += 3) {
        INFO(to_string(f) << " seed " << f.order_seed << ": " << to_string(known_questions()[i]));
        CHECK(ask(stream, i) == known_answer(f.numerics, i));
      }
    }
}

TEST_CASE("instructions have on the host the meaning that nvcc's have") {
  const FloatMode mode;
  CHECK(fma_f32(1 + 0x1p-12f, 1 - 0x1p-12f, -1) == -0x1p-24f);  // rounded once
  CHECK(fma_f32(0x1p-70f, 0x1p-70f, 0) == 0);                   // flushed
  CHECK(fma_f32(0x1p-127f, 0x1p20f, 0) == 0);                   // a denormal is zero
  CHECK(round_pair(1.0f, -2.0f) == 0xc0003f80u);
  CHECK(round_pair(0x1.01p0f, 0x1.03p0f) == 0x3f823f80u);  // ties to even
}

}  // namespace
}  // namespace troupe::kernels::cuda_twin
