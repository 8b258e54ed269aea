/// A micro-kernel for each instruction, or short sequence, that the kernels compute with. Compiled
/// by nvcc and for the host's twin of a GPU.
#include "tests/kernels/instructions.h"

#include <array>
#include <cassert>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/math.h"
#ifndef __CUDACC__
#include "kernels/cuda/twin/backend.h"
#endif

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// What a thread is asked.
struct Words {
  std::uint32_t a, b, c;
  DEVICE float x() const { return std::bit_cast<float>(a); }
  DEVICE float y() const { return std::bit_cast<float>(b); }
  DEVICE float z() const { return std::bit_cast<float>(c); }
};

DEVICE std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// A thread a question, a warp a CTA.
template <class Op>
struct Micro {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = Op::kMeets;

  const Asked* asked;
  std::uint32_t* answers;
  std::int64_t count;

  DEVICE void operator()(Cta& cta) const {
    const std::int64_t i = cta.block_x() * kThreads + cta.thread();
    const std::int64_t at = i < count ? i : 0;
    const std::uint32_t* w = asked[at].words;
    const std::uint32_t answer = Op::of(cta, Words{w[0], w[1], w[2]}, asked + at);
    if (i < count) answers[i] = answer;
  }
};

struct Alone {
  static constexpr bool kMeets = false;
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
struct FromE4m3 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(e4m3_to_float(static_cast<std::uint8_t>(w.a)));
  }
};
struct FromE2m1 : Alone {
  DEVICE static std::uint32_t of(Cta&, Words w, const Asked*) {
    return bits_of(Fp4Codes::value(w.a));
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
    return bits_of((static_cast<float>(w.a & 15u) - static_cast<float>(w.b & 15u)) * w.z());
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
struct ShuffleOp {
  static constexpr bool kMeets = true;
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
    {"from_e2m1", ask_one<FromE2m1>},
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

std::vector<std::vector<std::uint32_t>> ask_instructions(const Backend& backend) {
  namespace space = TROUPE_CUDA_SPACE;
  Stream stream({.numerics = Numerics::kBf16, .backend = &backend});
  std::vector<std::vector<std::uint32_t>> all;
  for (const Instruction& instruction : instructions())
    for (const space::ByName& op : space::kOps)
      if (op.name == instruction.name) all.push_back(op.ask(stream, instruction));
  assert(all.size() == instructions().size());
  return all;
}

}  // namespace troupe::kernels
