/// MLA's attention by the instructions of sm_90a has the bits of that by mma. Where the GPU has
/// none, or its twin is another's, both are the same kernel.
#include <cmath>

#include "kernels/attention.h"
#include "mma_families.h"
#include "runtime/bf16.h"
#include "support.h"

namespace troupe::kernels::wgmma {
namespace {

constexpr std::int64_t kKey = 576, kValue = 512, kBlock = 16;

/// Rows of a sequence, at the end of its context.
struct Sequence {
  std::int32_t context = 1, rows = 1;
};
struct Case {
  std::int64_t heads;
  std::vector<Sequence> sequences;
  std::int64_t window = 0;
  bool sinks = false;
  float size = 1;  ///< of queries: how far scores are apart
};

std::string to_string(const Case& c) {
  std::string text = "heads " + std::to_string(c.heads) + " window " + std::to_string(c.window) +
                     (c.sinks ? " sinks" : "");
  for (const Sequence& s : c.sequences)
    text += " " + std::to_string(s.rows) + "@" + std::to_string(s.context);
  return text;
}

/// A call over a cache in which blocks lie anywhere, and NaN lies where nobody may look.
class Call {
 public:
  Call(const Case& c, unsigned seed) : c_(c), random_(seed) {
    std::size_t blocks = 0, rows = 0;
    for (const Sequence& s : c.sequences) {
      blocks += static_cast<std::size_t>((s.context + kBlock - 1) / kBlock);
      rows += static_cast<std::size_t>(s.rows);
    }
    std::vector<std::int32_t> free;
    for (std::size_t b = 0; b < blocks + 3; ++b) free.push_back(static_cast<std::int32_t>(b));
    for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random_.bits() % i]);
    cache_ = Buffer(free.size() * kBlock * kKey * 2);
    auto* const numbers = reinterpret_cast<std::uint16_t*>(cache_.data());
    std::fill(numbers, numbers + cache_.size() / 2, std::uint16_t{0x7fc0});
    for (const Sequence& s : c.sequences) {
      auto& table = held_.emplace_back();
      for (std::int32_t p = 0; p < s.context; ++p) {
        if (p % kBlock == 0) {
          table.push_back(free.back());
          free.pop_back();
        }
        std::uint16_t* const at = numbers + (table.back() * kBlock + p % kBlock) * kKey;
        for (std::int64_t i = 0; i < kKey; ++i) at[i] = to_bf16(random_.value()).bits;
      }
      for (std::int32_t r = 0; r < s.rows; ++r) positions_.push_back(s.context - s.rows + r);
    }
    for (std::size_t s = 0; s < held_.size(); ++s)
      tables_.insert(tables_.end(), static_cast<std::size_t>(c.sequences[s].rows), held_[s].data());
    q_ = random_values(rows * static_cast<std::size_t>(c.heads * kKey), seed + 1, c.size);
    sinks_ = random_values(static_cast<std::size_t>(c.heads), seed + 2);
    in_.keys = in_.values = {cache_.data(), DType::kBf16, kBlock, kKey};
    in_.scale = 0.07f;
    in_.window = c.window;
    if (c.sinks) in_.sinks = sinks_.data();
  }

  /// With queries on a boundary of sixteen bytes; or four bytes behind one, from where only the
  /// kernel of mma takes them.
  std::vector<float> by_wgmma(Stream& stream) const { return run(stream, 0); }
  std::vector<float> by_mma(Stream& stream) const { return run(stream, 1); }

 private:
  std::vector<float> run(Stream& stream, std::size_t behind) const {
    const auto rows = static_cast<std::int64_t>(positions_.size());
    Buffer q((q_.size() + behind) * sizeof(float));
    Buffer out(static_cast<std::size_t>(rows * c_.heads * kValue) * sizeof(float));
    std::memset(out.data(), 0xff, out.size());
    auto* const from = reinterpret_cast<float*>(q.data()) + behind;
    auto* const to = reinterpret_cast<float*>(out.data());
    std::copy(q_.begin(), q_.end(), from);
    attention(stream, in_, {tables_.data(), positions_.data()},
              host_tensor(from, DType::kF32, rows, c_.heads * kKey).split(c_.heads),
              host_tensor(to, DType::kF32, rows, c_.heads * kValue).split(c_.heads));
    return {to, to + rows * c_.heads * kValue};
  }

  const Case c_;
  Random random_;
  Buffer cache_;
  std::vector<std::vector<std::int32_t>> held_;
  std::vector<const std::int32_t*> tables_;
  std::vector<std::int32_t> positions_;
  std::vector<float> q_, sinks_;
  AttentionInputs in_;
};

void check_alike(const Family& f, const std::vector<Case>& cases, unsigned seed) {
  for (const Case& c : cases) {
    INFO(to_string(f) << " " << to_string(c));
    TestStream stream(f, 2);
    const Call call(c, ++seed);
    const auto got = call.by_wgmma(stream), right = call.by_mma(stream);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      wrong += std::isfinite(right[i]) && same_bits(&got[i], &right[i], 1) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("attention by wgmma has the bits of that by mma, whatever the order of an mma") {
  for (const Family& f : all_orders())
    check_alike(f,
                {{64, {{1}, {31}, {33, 2}}},
                 {128, {{70, 3}}, 0, true},
                 {16, {{100, 3}, {64}}, 40, true, 6},
                 {20, {{97, 2}}, 33}},
                200);
}

TEST_CASE("parts of 1,024 positions are folded by wgmma as by mma") {
  for (const Family& f : other_orders())
    check_alike(f,
                {{16, {{1100}}},
                 {64, {{1030, 2}}, 50, true, 4},
                 // More parts than are computed at once: a CTA folds two of them.
                 {16, {{1090, 70}}, 40, true}},
                300);
}

TEST_CASE("long contexts by wgmma have the bits of those by mma, where there is a GPU") {
  for (const Family& f : all_orders()) {
    if (f.backend->name == "cuda_twin") continue;
    check_alike(f,
                {{128, {{8192, 4}, {4097, 2}, {1}, {1024}, {1025}}, 0, false, 3},
                 {64, {{3000, 130}}, 0, true, 10},
                 {32, {{2049, 90}}, 1500, true, 10},
                 {128, {{2500, 60}, {2100, 7}}, 0, false, 0.01f}},
                400);
  }
}

}  // namespace
}  // namespace troupe::kernels::wgmma
