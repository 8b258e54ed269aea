/// A micro-kernel for each instruction, or short sequence, that the kernels compute with. Compiled
/// by nvcc and for the host's twin of a GPU.
#include "tests/kernels/instructions.h"

#include <array>
#include <cassert>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/ptx.h"
#include "kernels/sample_row.h"
#ifndef __CUDACC__
#include "kernels/cuda/twin/backend.h"
#endif

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// What a thread is asked.
struct Words {
  std::uint32_t a, b, c, d;
  DEVICE float x() const { return std::bit_cast<float>(a); }
  DEVICE float y() const { return std::bit_cast<float>(b); }
  DEVICE float z() const { return std::bit_cast<float>(c); }
  DEVICE double x64() const { return std::bit_cast<double>(std::uint64_t{a} << 32 | b); }
  DEVICE double y64() const { return std::bit_cast<double>(std::uint64_t{c} << 32 | d); }
};

DEVICE std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// A thread a question, a warp a CTA.
template <class Op>
struct Micro {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = Op::kSharedBytes;
  static constexpr bool kMeets = Op::kMeets;

  const Asked* asked;
  std::uint32_t* answers;
  std::int64_t count;

  DEVICE void operator()(Cta& cta) const {
    const std::int64_t i = cta.block_x() * kThreads + cta.thread();
    const std::int64_t at = i < count ? i : 0;
    const std::uint32_t* w = asked[at].words;
    const std::uint32_t answer = Op::of(cta, Words{w[0], w[1], w[2], w[3]}, asked + at);
    if (i < count) answers[i] = answer;
  }
};

struct Alone {
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;
};
template <std::size_t kQuads>
struct Meets {
  static constexpr std::size_t kSharedBytes = kQuads * sizeof(Quad);
  static constexpr bool kMeets = true;
};

struct Add : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(w.x() + w.y()); }
};
struct Subtract : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(w.x() - w.y()); }
};
struct Multiply : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(w.x() * w.y()); }
};
struct Divide : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(w.x() / w.y()); }
};
struct Reciprocal : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(1.0f / w.x()); }
};
struct Fma : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(fma_f32(w.x(), w.y(), w.z()));
  }
};
struct Root : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(root(w.x())); }
};
struct Larger : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(w.x() > w.y() ? w.x() : w.y());
  }
};
struct Exp : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(exp_f32(w.x())); }
};
struct Sigmoid : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(sigmoid_f32(w.x()));
  }
};
struct RoundPair : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return round_pair(w.x(), w.y()); }
};
struct ToBf16 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return to_bf16(w.x()).bits; }
};
struct LowHalf : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(low_half(w.a)); }
};
struct HighHalf : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return bits_of(high_half(w.a)); }
};
struct ToE4m3 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) { return to_e4m3(w.x()); }
};
/// One of two codes, beside any other.
struct E4m3Pair : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const Floats2 two = e4m3_pair(w.a);
    return bits_of(w.b == 0 ? two.low : two.high);
  }
};
struct FromE4m3 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(e4m3_to_float(static_cast<std::uint8_t>(w.a)));
  }
};
struct E2m1Pair : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const Floats2 two = e2m1_pair(w.a);
    return bits_of(w.b == 0 ? two.low : two.high);
  }
};
struct WidenHalves : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const Floats2 two = widen_halves(w.a);
    return bits_of(w.b == 0 ? two.low : two.high);
  }
};
struct FromE8m0 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(cpu::e8m0_value(w.a));
  }
};
struct FromF16 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(f16_to_float(static_cast<std::uint16_t>(w.a)));
  }
};
/// (code - zero) scale, as int4 is expanded.
struct FromInt4 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const std::uint32_t beyond = 0x5a5a5a50;  // counts for nothing
    return bits_of((nibble_above_2_23(w.a | beyond) - nibble_above_2_23(w.b | beyond)) * w.z());
  }
};
struct ToFloat : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(static_cast<float>(static_cast<std::int64_t>(w.a) - (std::int64_t{1} << 31)));
  }
};
/// The 64 bits (a, b) by less than 64.
struct ShiftRight : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const std::uint64_t wide = std::uint64_t{w.a} << 32 | w.b;
    return static_cast<std::uint32_t>(wide >> (w.c & 63u));
  }
};
/// Signed, as positions are taken apart.
struct Quotient : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(w.a) /
                                      static_cast<std::int32_t>(w.b));
  }
};
struct Remainder : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(w.a)) %
                                      static_cast<std::int32_t>(w.b));
  }
};
/// The upper half of a product of 64 bits, as offsets into a cache are counted.
struct WideProduct : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    const std::int64_t product =
        std::int64_t{static_cast<std::int32_t>(w.a)} * static_cast<std::int32_t>(w.b);
    return static_cast<std::uint32_t>(product >> 32);
  }
};
/// Lane b's a.
struct ShuffleOp : Meets<0> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    return bits_of(cta.shuffle(0xffffffffu, w.x(), static_cast<int>(w.b & 31u)));
  }
};
/// The a-th word of sixteen bytes.
struct LoadQuad : Alone {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked* from) {
    const Quad quad = cta.load_quad(from);
    return w.a % 4 == 0   ? quad.words[0]
           : w.a % 4 == 1 ? quad.words[1]
           : w.a % 4 == 2 ? quad.words[2]
                          : quad.words[3];
  }
};

/// A lane's part of the set's matrices, as ptx.h lays them out.
struct MmaLane {
  std::uint32_t a[4], b[2];
  float c[4];

  /// `row`: the only row of a that is there, the others are NaN; -1: all are.
  DEVICE MmaLane(const Cta& cta, std::uint32_t set, int row) {
    const auto g = static_cast<std::uint32_t>(cta.lane() / 4);
    const auto t = static_cast<std::uint32_t>(cta.lane() % 4 * 2);
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t r = g + i % 2 * 8, k = t + i / 2 * 8;
      const bool there = row < 0 || r == static_cast<std::uint32_t>(row);
      a[i] = there ? mma_a(set, r, k) | mma_a(set, r, k + 1) << 16 : 0x7fc07fc0u;
      c[i] = std::bit_cast<float>(mma_c(set, g + i / 2 * 8, t + i % 2));
    }
    for (std::uint32_t i = 0; i < 2; ++i)
      b[i] = mma_b(set, t + i * 8, g) | mma_b(set, t + i * 8 + 1, g) << 16;
  }
  DEVICE float of(Cta& cta, std::uint32_t i) {
    ptx::mma(cta, a, b[0], b[1], c);
    return i == 0 ? c[0] : i == 1 ? c[1] : i == 2 ? c[2] : c[3];
  }
};
/// Of set a, number b of this lane, c.
struct Mma : Meets<0> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    return bits_of(MmaLane(cta, w.a, -1).of(cta, w.b));
  }
};
/// Whether it is what the first lane has first.
struct MmaAlike : Meets<0> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    const float mine = MmaLane(cta, w.a, -1).of(cta, w.b);
    const float first = MmaLane(cta, w.a, -1).of(cta, 0);
    return bits_of(mine) == bits_of(cta.shuffle(0xffffffffu, first, 0)) ? 1 : 0;
  }
};
/// Whether a row is what it is beside others that are NaN.
struct MmaApart : Meets<0> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    const int row = static_cast<int>(w.a & 15u);
    const float all = MmaLane(cta, w.a, -1).of(cta, w.b);
    const float apart = MmaLane(cta, w.a, row).of(cta, w.b);
    const bool mine = cta.lane() / 4 + static_cast<int>(w.b) / 2 * 8 == row;
    return !mine || bits_of(all) == bits_of(apart) ? 1 : 0;
  }
};
/// Word b of what this lane, c, gets of 32 rows, of which it names another than its own.
template <bool kTurned>
struct LoadMatrix : Meets<32> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    const Shared<Quad> room = cta.shared<Quad>(0, 32);
    const auto lane = static_cast<std::uint32_t>(cta.lane());
    room[lane] =
        Quad{{mixed(w.a, lane, 0), mixed(w.a, lane, 1), mixed(w.a, lane, 2), mixed(w.a, lane, 3)}};
    cta.sync();
    std::uint32_t to[4];
    if constexpr (kTurned)
      ptx::ldmatrix_trans(cta, room, (lane * 5 + w.a) % 32, to);
    else
      ptx::ldmatrix(cta, room, (lane * 5 + w.a) % 32, to);
    return w.b == 0 ? to[0] : w.b == 1 ? to[1] : w.b == 2 ? to[2] : to[3];
  }
};
/// Whether any lane's bit of a is set; this lane is b.
struct AnyLane : Meets<0> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked*) {
    return ptx::any(cta, (w.a >> cta.lane() & 1u) != 0) ? 1 : 0;
  }
};
/// The first word that a lane has copied itself, of the first of two groups, and the second word
/// that its neighbour has, of the second: zero if c says so.
struct CopyLater : Meets<64> {
  DEVICE static std::uint32_t of(Cta& cta, Words w, const Asked* from) {
    const Shared<Quad> room = cta.shared<Quad>(0, 64);
    ptx::copy_later(cta, room, cta.lane(), from);
    ptx::commit_copies(cta);
    ptx::copy_later(cta, room, 32 + cta.lane(), w.c != 0 ? nullptr : from);
    ptx::commit_copies(cta);
    ptx::wait_copies<1>(cta);
    const Quad own = room[cta.lane()];
    ptx::wait_copies<0>(cta);
    cta.sync();
    const Quad other = room[32 + (cta.lane() ^ 1)];
    return own.words[0] ^ other.words[1];
  }
};

// float64, as sampling computes with it: the upper and the lower half of a result.
struct Add64 {
  DEVICE static double of(Words w) { return w.x64() + w.y64(); }
};
struct Multiply64 {
  DEVICE static double of(Words w) { return w.x64() * w.y64(); }
};
struct Divide64 {
  DEVICE static double of(Words w) { return w.x64() / w.y64(); }
};
struct Exp64 {
  DEVICE static double of(Words w) { return sampling::exp_or_zero(w.x64()); }
};
struct Log64 {
  DEVICE static double of(Words w) { return log_f64(w.x64()); }
};
struct Widen {
  DEVICE static double of(Words w) { return static_cast<double>(w.x()); }
};
template <class Op, int kHalf>
struct HalfOf : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(Op::of(w)) >> (32 * kHalf));
  }
};
struct Narrow : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(static_cast<float>(w.x64()));
  }
};

template <class Op>
std::vector<std::uint32_t> ask_one(Stream& stream, const Instruction& instruction) {
  const auto count = static_cast<std::int64_t>(instruction.asked.size());
  Stream::Scope scope(stream);
  const Asked* asked = staged(stream, instruction.asked.data(), count);
  auto* answers = stream.scratch().take<std::uint32_t>(static_cast<std::size_t>(count));
  std::fill(answers, answers + count, 0xbad0bad0u);
  launch(stream, {ceil_div(count, Micro<Op>::kThreads)}, Micro<Op>{asked, answers, count});
  return {answers, answers + count};
}

struct ByName {
  std::string_view name;
  std::vector<std::uint32_t> (*ask)(Stream&, const Instruction&);
};
constexpr ByName kOps[] = {
    {"add", ask_one<Add>},
    {"subtract", ask_one<Subtract>},
    {"multiply", ask_one<Multiply>},
    {"divide", ask_one<Divide>},
    {"reciprocal", ask_one<Reciprocal>},
    {"fma", ask_one<Fma>},
    {"root", ask_one<Root>},
    {"larger", ask_one<Larger>},
    {"exp", ask_one<Exp>},
    {"sigmoid", ask_one<Sigmoid>},
    {"round_pair", ask_one<RoundPair>},
    {"to_bf16", ask_one<ToBf16>},
    {"low_half", ask_one<LowHalf>},
    {"high_half", ask_one<HighHalf>},
    {"to_e4m3", ask_one<ToE4m3>},
    {"from_e4m3", ask_one<FromE4m3>},
    {"e4m3_pair", ask_one<E4m3Pair>},
    {"e2m1_pair", ask_one<E2m1Pair>},
    {"widen_halves", ask_one<WidenHalves>},
    {"from_e8m0", ask_one<FromE8m0>},
    {"from_f16", ask_one<FromF16>},
    {"from_int4", ask_one<FromInt4>},
    {"to_float", ask_one<ToFloat>},
    {"shift_right", ask_one<ShiftRight>},
    {"quotient", ask_one<Quotient>},
    {"remainder", ask_one<Remainder>},
    {"wide_product", ask_one<WideProduct>},
    {"shuffle", ask_one<ShuffleOp>},
    {"load_quad", ask_one<LoadQuad>},
    {"mma", ask_one<Mma>},
    {"mma_alike", ask_one<MmaAlike>},
    {"mma_apart", ask_one<MmaApart>},
    {"ldmatrix", ask_one<LoadMatrix<false>>},
    {"ldmatrix_trans", ask_one<LoadMatrix<true>>},
    {"any", ask_one<AnyLane>},
    {"copy_later", ask_one<CopyLater>},
    {"add_f64_high", ask_one<HalfOf<Add64, 1>>},
    {"add_f64_low", ask_one<HalfOf<Add64, 0>>},
    {"multiply_f64_high", ask_one<HalfOf<Multiply64, 1>>},
    {"multiply_f64_low", ask_one<HalfOf<Multiply64, 0>>},
    {"divide_f64_high", ask_one<HalfOf<Divide64, 1>>},
    {"divide_f64_low", ask_one<HalfOf<Divide64, 0>>},
    {"exp_f64_high", ask_one<HalfOf<Exp64, 1>>},
    {"exp_f64_low", ask_one<HalfOf<Exp64, 0>>},
    {"log_f64_high", ask_one<HalfOf<Log64, 1>>},
    {"log_f64_low", ask_one<HalfOf<Log64, 0>>},
    {"widen_high", ask_one<HalfOf<Widen, 1>>},
    {"widen_low", ask_one<HalfOf<Widen, 0>>},
    {"narrow", ask_one<Narrow>},
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

const Backend* instruction_backend() {
#ifdef __CUDACC__
  return cuda_backend();
#else
  return cuda_twin_backend();
#endif
}

std::vector<std::vector<std::uint32_t>> ask_instructions(const Backend& backend,
                                                         std::uint64_t order_seed) {
  namespace space = TROUPE_CUDA_SPACE;
  Stream stream({.numerics = Numerics::kBf16, .backend = &backend, .order_seed = order_seed});
  std::vector<std::vector<std::uint32_t>> all;
  for (const Instruction& instruction : instructions())
    for (const space::ByName& op : space::kOps)
      if (op.name == instruction.name) all.push_back(op.ask(stream, instruction));
  assert(all.size() == instructions().size());
  return all;
}

}  // namespace troupe::kernels
