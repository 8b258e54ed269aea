#include "tests/kernels/twin_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/scalar_math.h"
#include "tests/kernels/twin_products.h"

namespace troupe::kernels::twin {
namespace {

using Row = std::vector<float>;

/// A softmax of a stretch of the context before it is divided.
struct Partial {
  float m = 0, l = 0;
  Row out;
};

struct Attention {
  const Context& c;
  bool plain = c.numerics == Numerics::kReference;

  float rounded(float x) const { return plain ? x : twin_bf(x); }
  float sum(const Row& x, const Row& w) const {
    return TwinSum{c.numerics}(x.data(), w.data(), static_cast<std::int64_t>(x.size()));
  }
  float add(float a, float b, float to) const { return plain ? a * b + to : std::fma(a, b, to); }

  /// Positions [first, first + 256): those before `from` and after `position` weigh nothing.
  std::optional<Partial> tile(const Row& query, std::int64_t first, std::int64_t from,
                              std::int64_t position) const {
    Row score(256, -HUGE_VALF);
    Partial tile;
    tile.m = -HUGE_VALF;
    bool any = false;
    const auto sees = [&](std::int64_t p) { return p >= from && p <= position; };
    for (std::int64_t i = 0; i < 256; ++i) {
      if (!sees(first + i)) continue;
      any = true;
      auto& s = score[static_cast<std::size_t>(i)];
      s = c.scale * sum(query, c.keys[static_cast<std::size_t>(first + i)]);
      tile.m = tile.m > s ? tile.m : s;
    }
    if (!any) return std::nullopt;
    Row p(256), one(256);
    for (std::size_t i = 0; i < 256; ++i) {
      if (!sees(first + static_cast<std::int64_t>(i))) continue;
      p[i] = rounded(exp_f32(score[i] - tile.m));
      one[i] = 1;
    }
    tile.l = sum(p, one);
    for (std::size_t d = 0; d < c.values[0].size(); ++d) {
      Row v(256);
      for (std::size_t i = 0; i < 256; ++i)
        if (const auto at = first + static_cast<std::int64_t>(i); sees(at))
          v[i] = c.values[static_cast<std::size_t>(at)][d];
      tile.out.push_back(sum(p, v));
    }
    return tile;
  }

  /// A chain of `cuda_mma`: k in sixteens, each in float64, rounded once.
  static float chain(float sum, const float* x, const float* w, std::size_t k) {
    for (std::size_t first = 0; first < k; first += 16) {
      auto of_mma = static_cast<double>(sum);
      for (std::size_t i = first; i < std::min(first + 16, k); ++i)
        of_mma += static_cast<double>(x[i]) * static_cast<double>(w[i]);
      sum = static_cast<float>(of_mma);
    }
    return sum;
  }

  /// `cuda_mma`: positions [first, first + 32) are taken in by what is before them.
  void take_in(std::optional<Partial>& into, const Row& query, std::int64_t first,
               std::int64_t from, std::int64_t position) const {
    const auto sees = [&](std::int64_t p) { return p >= from && p <= position; };
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(first + i); };
    float p[32] = {}, max = -HUGE_VALF, sum = 0;
    bool any = false;
    for (std::int64_t i = 0; i < 32; ++i) {
      if (!sees(first + i)) continue;
      any = true;
      p[i] = c.scale * chain(0, query.data(), c.keys[at(i)].data(), query.size());
      max = max > p[i] ? max : p[i];
    }
    if (!any) return;
    if (into) max = into->m > max ? into->m : max;
    float sums[8];
    for (std::int64_t i = 0; i < 32; ++i) {
      p[i] = sees(first + i) ? rounded(exp_f32(p[i] - max)) : 0.0f;
      sums[i / 4] = i % 4 == 0 ? p[i] : sums[i / 4] + p[i];
    }
    sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    const float factor = into ? exp_f32(into->m - max) : 1.0f;
    if (!into) into = Partial{0, 0, Row(c.values[0].size())};
    into->l = add(into->l, factor, sum);
    into->m = max;
    for (std::size_t d = 0; d < into->out.size(); ++d) {
      float v[32] = {};
      for (std::int64_t i = 0; i < 32; ++i)
        if (sees(first + i)) v[i] = c.values[at(i)][d];
      into->out[d] = chain(into->out[d] * factor, p, v, 32);
    }
  }

  void fold(std::optional<Partial>& into, const Partial& next) const {
    if (!into) {
      into = next;
      return;
    }
    const float m = into->m > next.m ? into->m : next.m;
    const float x = exp_f32(next.m - m), y = exp_f32(into->m - m);
    into->m = m;
    into->l = add(next.l, x, into->l * y);
    for (std::size_t d = 0; d < next.out.size(); ++d)
      into->out[d] = add(next.out[d], x, into->out[d] * y);
  }
};

}  // namespace

float e4m3(float x) {
  if (std::isnan(x)) return x;
  const double size = std::abs(static_cast<double>(x));
  if (size >= 448) return std::copysign(448.0f, x);
  // A power of two; all is exact in float64.
  const int step = (size < 0x1p-6 ? -6 : std::ilogb(size)) - 3;
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(size, -step)), step);
  return std::copysign(static_cast<float>(nearest), x);
}

float cached(Numerics numerics, float x) {
  if (numerics == Numerics::kReference) return x;
  return kv_type(numerics) == DType::kF8E4M3 ? e4m3(x) : twin_bf(x);
}

std::vector<float> attention(const Context& context, const std::vector<float>& query,
                             std::int64_t position, const float* sink) {
  const Attention a{context};
  Row q = query;
  for (float& x : q) x = a.rounded(x);
  const std::int64_t from =
      context.window == 0 ? 0 : std::max<std::int64_t>(0, position - context.window + 1);
  std::optional<Partial> total;
  for (std::int64_t part = 0; part <= position; part += 1024) {
    std::optional<Partial> of_part;
    for (std::int64_t t = part; by_tensor_cores(context.numerics) && t < part + 1024; t += 32)
      a.take_in(of_part, q, t, from, position);
    for (std::int64_t t = part; !by_tensor_cores(context.numerics) && t < part + 1024; t += 256)
      if (const auto tile = a.tile(q, t, from, position)) a.fold(of_part, *tile);
    if (of_part) a.fold(total, *of_part);
  }
  if (sink != nullptr) a.fold(total, {*sink, 1, Row(total->out.size())});
  for (float& x : total->out) x *= 1.0f / total->l;
  return total->out;
}

}  // namespace troupe::kernels::twin
