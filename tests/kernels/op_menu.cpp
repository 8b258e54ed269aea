#include "op_menu.h"

#include <cstring>

#include "product_support.h"

namespace troupe::kernels {
namespace {

constexpr std::int64_t kRows = 3, kDim = 320, kHeads = 4;

Weight vector_weight(std::int64_t n) {
  const std::vector<float> values = Random(5).values(n);
  auto packer =
      WeightPacker::begin(Numerics::kBf16, {Codes::kF32, 1, n, {}}, {.rows = true}).value();
  packer.add(reinterpret_cast<const std::byte*>(values.data()), 1);
  return packer.take();
}

Weight matrix_weight(std::int64_t n, std::int64_t k, const PackOptions& options = {}) {
  std::vector<std::uint16_t> codes;
  for (const float x : Random(6).values(n * k)) codes.push_back(to_bf16(x).bits);
  auto packer = WeightPacker::begin(Numerics::kBf16, {Codes::kBf16, n, k, {}}, options).value();
  packer.add(reinterpret_cast<const std::byte*>(codes.data()), n);
  return packer.take();
}

GatedMlp small_mlp() {
  GatedMlp mlp;
  mlp.gate = matrix_weight(64, kDim);
  mlp.up = matrix_weight(64, kDim);
  mlp.down = matrix_weight(kDim, 64, {.slices = 2});
  return mlp;
}

Tensor run_linear(Stream& stream, Places& places) {
  const Weight w = matrix_weight(100, kDim);
  const Tensor x = places.tensor(DType::kF32, kRows, 1, kDim);
  const Tensor y = places.tensor(DType::kF32, kRows, 1, 100);
  Stream::Scope scope(stream);
  linear(stream, w, prepare(stream, x, w), y);
  return y;
}

Tensor run_experts(Stream& stream, Places& places) {
  const GatedMlp mlp = small_mlp();
  const Tensor x = places.tensor(DType::kBf16, kRows, 1, kDim);
  const Tensor y = places.tensor(DType::kBf16, kRows, 1, kDim);
  std::vector<const std::byte*> rows;
  std::vector<std::byte*> outputs;
  for (std::int64_t r = 0; r < kRows; ++r) {
    rows.push_back(static_cast<const std::byte*>(x.data) + r * x.row_stride * 2);
    outputs.push_back(static_cast<std::byte*>(y.data) + r * y.row_stride * 2);
  }
  const ExpertCall calls[] = {{&mlp, 0, 2}, {&mlp, 2, 1}};
  expert_mlp(stream, calls, {}, rows.data(), outputs.data());
  return y;
}

Tensor run_gate(Stream& stream, Places& places) {
  GateConfig config;
  config.experts = 64;
  config.n_group = 8;
  config.topk_group = 4;
  config.top_k = 6;
  const Tensor logits = places.tensor(DType::kF32, 40, 1, config.experts);
  const Tensor ids = places.tensor(DType::kF32, 1, 1, 40 * config.top_k);
  const Tensor weights = places.tensor(DType::kF32, 1, 1, 40 * config.top_k);
  moe_gate(stream, config, logits, nullptr, static_cast<std::int32_t*>(ids.data),
           static_cast<float*>(weights.data));
  return weights;
}

/// Drawn with penalties among the best of some, and with log-probabilities.
Tensor run_sample(Stream& stream, Places& places) {
  const Tensor logits = places.tensor(DType::kF32, kRows, 1, kDim);
  constexpr std::int64_t kColumns = 4;
  const Tensor results = places.tensor(DType::kF32, 1, 1, kRows * (3 + 2 * kColumns));
  std::vector<SampleCall> calls(kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    SampleCall& call = calls[static_cast<std::size_t>(r)];
    call.row = r;
    call.top = kColumns;
    call.top_p = 0.9f;
    call.frequency_penalty = 0.5f;
    call.adjusted = 2;
    call.mask = static_cast<std::int32_t>(r % 2);
    call.uniform = 0.7;
  }
  const AdjustedToken adjusted[] = {{7, 1}, {300, 2, 0.5f}};
  const std::vector<std::uint32_t> masks(static_cast<std::size_t>(2 * mask_words(kDim)),
                                         0x77777777);
  auto* const of = static_cast<SampleResult*>(results.data);
  sample(stream, logits, calls, {adjusted, masks},
         {of, reinterpret_cast<TokenLogprob*>(of + kRows), kColumns});
  return results;
}

Tensor run_combine(Stream& stream, Places& places) {
  const Tensor outputs = places.tensor(DType::kBf16, 2 * kRows, 1, kDim);
  const Tensor y = places.tensor(DType::kF32, kRows, 1, kDim);
  std::vector<WeightedOutput> weighted;
  for (std::int64_t i = 0; i < 2 * kRows; ++i)
    weighted.push_back({static_cast<const std::byte*>(outputs.data) + i * outputs.row_stride * 2,
                        0.25f * static_cast<float>(i)});
  combine(stream, weighted, 2, y);
  return y;
}

Tensor run_combine_dense(Stream& stream, Places& places) {
  const Tensor outputs = places.tensor(DType::kBf16, 2 * kRows, 1, kDim);
  const Tensor weights = places.tensor(DType::kF32, 1, 1, 2 * kRows);
  const Tensor y = places.tensor(DType::kF32, kRows, 1, kDim);
  combine_dense(stream, outputs, static_cast<const float*>(weights.data), y);
  return y;
}

/// Two passes, of two experts each.
Tensor run_chosen(Stream& stream, Places& places) {
  const GatedMlp first = small_mlp(), second = small_mlp();
  const ExpertTable table = expert_table(stream, {&first, &second});
  const Tensor x = places.tensor(DType::kBf16, 1, 1, kRows * kDim);
  const Tensor y = places.tensor(DType::kBf16, 1, 1, 2 * kRows * kDim);
  auto* const ids = reinterpret_cast<std::int32_t*>(places.take(2 * kRows * 4));
  for (std::int32_t i = 0; i < 2 * kRows; ++i) ids[i] = i % 2;
  const ChosenRows rows = {static_cast<const std::byte*>(x.data), ids,
                           static_cast<std::byte*>(y.data),
                           reinterpret_cast<std::int32_t*>(places.take(4)), kRows};
  chosen_mlp(stream, table, {}, 2, {&rows, 1}, 4);
  return y;
}

Tensor run_rope(Stream& stream, Places& places) {
  const Tensor table = places.tensor(DType::kF32, 1, 1, 2 * kRows * 16);
  const auto* const cos = static_cast<const float*>(table.data);
  const std::array<std::int32_t, kRows> positions = {2, 0, 1};
  const Tensor x = places.tensor(DType::kF32, kRows, kHeads, 40);
  rope(stream, {cos, cos + kRows * 16, kRows, 16}, RopePairs::kInterleaved, positions.data(), x);
  return x;
}

/// A sequence of 1,300 positions in blocks that lie apart.
Tensor run_attention(Stream& stream, Places& places) {
  constexpr std::int64_t kContext = 1300, kBlockSize = 16, kWidth = 64;
  std::vector<std::int32_t> table, positions;
  for (std::int32_t b = 0; b * kBlockSize < kContext; ++b)
    table.push_back(places.block(b, kBlockSize * kWidth * 2));
  for (std::int32_t p = 0; p < kContext; ++p) positions.push_back(p);
  const std::vector<const std::int32_t*> tables(positions.size(), table.data());
  const std::size_t last =
      static_cast<std::size_t>(*std::max_element(table.begin(), table.end()) + 1) * kBlockSize *
      kWidth * 2;
  const KvPool pool = {places.take(last), DType::kBf16, kBlockSize, kWidth};
  std::vector<float> keys = Random(7).values(kContext * kWidth);
  store_kv(stream, pool, {tables.data(), positions.data()},
           host_tensor(keys.data(), DType::kF32, kContext, kWidth));
  const Tensor q = places.tensor(DType::kF32, kRows, kHeads, kWidth);
  const Tensor y = places.tensor(DType::kF32, kRows, kHeads, 32);
  AttentionInputs in;
  in.keys = in.values = pool;
  in.scale = 0.1f;
  attention(stream, in, {tables.data(), positions.data() + kContext - kRows}, q, y);
  return y;
}

Tensor run_embedding(Stream& stream, Places& places) {
  const Weight table = matrix_weight(kRows + 2, kDim, {.rows = true});
  const std::array<std::int32_t, kRows> ids = {4, 0, 2};
  const Tensor y = places.tensor(DType::kF32, kRows, 1, kDim);
  embedding(stream, table, ids.data(), y);
  return y;
}

Tensor run_join(Stream& stream, Places& places) {
  std::array<const float*, 4> parts = {};
  std::vector<std::vector<float>> sums;
  for (auto& part : parts)
    part =
        sums.emplace_back(Random(static_cast<unsigned>(sums.size())).values(kRows * kDim)).data();
  const Tensor y = places.tensor(DType::kF32, kRows, 1, kDim);
  join(stream, parts, nullptr, y);
  return y;
}

/// y of x, which both have [rows, heads, dim].
template <class Op>
Tensor of_two(Stream& stream, Places& places, DType from, DType to, std::int64_t heads,
              const Op& op) {
  const Tensor x = places.tensor(from, kRows, heads, kDim / heads);
  const Tensor y = places.tensor(to, kRows, heads, kDim / heads);
  op(stream, x, y);
  return y;
}

}  // namespace

Tensor Places::tensor(DType dtype, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  Tensor x = host_tensor(nullptr, dtype, rows, heads * dim).split(heads);
  if (rows > 1) x.row_stride = row_stride(heads * dim);
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  x.data = take(static_cast<std::size_t>(((rows - 1) * x.row_stride + heads * dim) * size));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < heads * dim; ++i) {
      const float value =
          static_cast<float>(static_cast<std::int32_t>(random_.next() >> 40)) * 0x1p-23f - 1.0f;
      std::byte* to = static_cast<std::byte*>(x.data) + (r * x.row_stride + i) * size;
      const std::uint16_t half = to_bf16(value).bits;
      std::memcpy(to, dtype == DType::kF32 ? static_cast<const void*>(&value) : &half,
                  static_cast<std::size_t>(size));
    }
  return x;
}

std::vector<std::byte> gathered(const Tensor& x) {
  const std::size_t size = dtype_size(x.dtype);
  const std::size_t row = static_cast<std::size_t>(x.cols()) * size;
  std::vector<std::byte> all;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto* from =
        static_cast<const std::byte*>(x.data) + r * x.row_stride * static_cast<std::int64_t>(size);
    all.insert(all.end(), from, from + row);
  }
  return all;
}

const std::vector<MenuOp>& op_menu() {
  using enum DType;
  static const std::vector<MenuOp> all = {
      {"linear", run_linear},
      {"gated_mlp",
       [](Stream& s, Places& p) {
         return of_two(s, p, kF32, kF32, 1, [](Stream& stream, const Tensor& x, const Tensor& y) {
           gated_mlp(stream, small_mlp(), {}, x, y);
         });
       }},
      {"expert_mlp", run_experts},
      {"moe_gate", run_gate},
      {"chosen_mlp", run_chosen},
      {"sample", run_sample},
      {"combine", run_combine},
      {"combine_dense", run_combine_dense},
      {"rope", run_rope},
      {"attention", run_attention},
      {"embedding", run_embedding},
      {"join", run_join},
      {"rms_norm",
       [](Stream& s, Places& p) {
         return of_two(s, p, kF32, kF32, 4, [](Stream& stream, const Tensor& x, const Tensor& y) {
           rms_norm(stream, x, vector_weight(x.dim), 1e-6f, y);
         });
       }},
      {"copy", [](Stream& s, Places& p) { return of_two(s, p, kF32, kF32, 4, copy); }},
      {"copy of bf16", [](Stream& s, Places& p) { return of_two(s, p, kBf16, kBf16, 4, copy); }},
      {"residual_add",
       [](Stream& s, Places& p) { return of_two(s, p, kF32, kF32, 1, residual_add); }},
      {"silu_mul",
       [](Stream& s, Places& p) {
         return of_two(s, p, kF32, kF32, 1, [](Stream& stream, const Tensor& x, const Tensor& y) {
           silu_mul(stream, {}, x, y, y);
         });
       }},
      {"to_wire", [](Stream& s, Places& p) { return of_two(s, p, kF32, kBf16, 1, to_wire); }},
      {"from_wire", [](Stream& s, Places& p) { return of_two(s, p, kBf16, kF32, 1, from_wire); }},
  };
  return all;
}

}  // namespace troupe::kernels
