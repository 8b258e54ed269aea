#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "runtime/buffer.h"
#include "runtime/split_mix.h"

/// Weights, rows and caches of `gpu_bench`, in the device's memory. Numbers are drawn: what is all
/// alike is computed faster than what is not.
namespace troupe::timing {

/// bf16 of about +-0.01.
inline void draw_bf16(SplitMix& random, std::byte* to, std::size_t bytes) {
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = (random.next() & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
    std::memcpy(to + i, &word, sizeof word);
  }
}

/// e4m3 without NaN.
inline void draw_e4m3(SplitMix& random, std::byte* to, std::size_t bytes) {
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = random.next() & 0xb7b7b7b7b7b7b7b7u;
    std::memcpy(to + i, &word, sizeof word);
  }
}

/// Packed matrices. FP8 has a scale for each 128 x 128, int4 for 128 of a row.
class Drawn {
 public:
  explicit Drawn(kernels::Stream& stream) : stream_(stream) {}

  struct Shape {
    std::int64_t n = 0, k = 0;
    kernels::PackOptions options = {};
    std::int64_t groups = 1;
  };
  kernels::Weight weight(kernels::Codes codes, const Shape& shape) {
    const std::int64_t rows = shape.groups * shape.n;
    const std::int64_t row_bytes = shape.k * kernels::code_bits(codes) / 8;
    kernels::StoredMatrix stored{codes, shape.n, shape.k, {}};
    scales_.assign(static_cast<std::size_t>(rows * shape.k / 128 + rows + shape.k), 0.01f);
    if (codes == kernels::Codes::kFp8)
      stored.scales = {reinterpret_cast<const std::byte*>(scales_.data()), DType::kF32, 128, 128};
    if (codes == kernels::Codes::kInt4)
      stored.scales = {reinterpret_cast<const std::byte*>(scales_.data()), DType::kF32, 1, 128};
    auto packer =
        kernels::WeightPacker::begin(stream_.numerics(), stored, shape.options, shape.groups)
            .value();
    // One piece of random rows, over and over: drawing takes longer than packing.
    constexpr std::int64_t kRows = kernels::WeightPacker::kRows;
    std::vector<std::byte> piece(static_cast<std::size_t>(kRows * row_bytes));
    draw(codes, piece);
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t row = 0; row < shape.n; row += kRows)
        packer.add(piece.data(), std::min(kRows, shape.n - row));
    return placed(packer.take());
  }
  kernels::Weight ones(std::int64_t n) {
    const std::vector<float> one(static_cast<std::size_t>(n), 1.0f);
    auto packer = kernels::WeightPacker::begin(stream_.numerics(), {kernels::Codes::kF32, 1, n, {}},
                                               {.rows = true})
                      .value();
    packer.add(reinterpret_cast<const std::byte*>(one.data()), 1);
    return placed(packer.take());
  }

  /// Rows of float32 or bf16, or of a cache, until the object goes.
  kernels::Tensor rows(DType dtype, std::int64_t rows, std::int64_t dim) {
    const auto bytes = static_cast<std::size_t>(rows * dim) * dtype_size(dtype);
    Buffer drawn(bytes);
    std::byte* const data = drawn.data();
    if (dtype == DType::kBf16) draw_bf16(random_, data, bytes);
    if (dtype == DType::kF8E4M3) draw_e4m3(random_, data, bytes);
    if (dtype == DType::kF32)
      for (std::size_t i = 0; i < bytes / 4; ++i)
        reinterpret_cast<float*>(data)[i] = static_cast<float>(i * 7919 % 127) * 0.01f - 0.6f;
    std::byte* const there = room(bytes);
    device().upload(there, drawn.span());
    return stream_.device_tensor(there, dtype, rows, dim);
  }
  std::byte* room(std::size_t bytes) {
    rooms_.push_back(stream_.memory(bytes));
    return rooms_.back().get();
  }

 private:
  kernels::Accelerator& device() const { return *stream_.accelerator(); }
  kernels::Weight placed(const kernels::Weight& packed) const {
    const std::shared_ptr<std::byte> there = stream_.memory(packed.bytes());
    device().upload(there.get(), packed.memory());
    return packed.placed(there);
  }
  void draw(kernels::Codes codes, std::vector<std::byte>& piece) {
    if (codes == kernels::Codes::kFp8) return draw_e4m3(random_, piece.data(), piece.size());
    if (codes == kernels::Codes::kBf16) return draw_bf16(random_, piece.data(), piece.size());
    if (codes == kernels::Codes::kInt4) {
      for (std::byte& two : piece) two = static_cast<std::byte>(random_.next() & 0xff);
      return;
    }
    for (std::size_t i = 0; i < piece.size() / 4; ++i)
      reinterpret_cast<float*>(piece.data())[i] = static_cast<float>(i * 31 % 61) * 0.001f;
  }

  kernels::Stream& stream_;
  SplitMix random_{1};
  std::vector<float> scales_;
  std::vector<std::shared_ptr<std::byte>> rooms_;
};

/// Sequences of a context each, blocks of all of them in turns.
struct Cached {
  Cached(Drawn& drawn, DType type, std::int64_t sequences, std::int64_t context, std::int64_t row)
      : tables(static_cast<std::size_t>(sequences)) {
    constexpr std::int64_t kBlock = 64;
    const std::int64_t blocks = (context + kBlock - 1) / kBlock;
    pool = {drawn.rows(type, sequences * blocks * kBlock, row).data, type, kBlock, row};
    for (std::int64_t s = 0; s < sequences; ++s)
      for (std::int64_t b = 0; b < blocks; ++b)
        tables[static_cast<std::size_t>(s)].push_back(static_cast<std::int32_t>(b * sequences + s));
  }
  /// Of each sequence its last `rows` positions.
  kernels::PagedRows last(std::int64_t rows, std::int64_t context) {
    of_row.clear();
    positions.clear();
    for (const auto& table : tables)
      for (std::int64_t r = 0; r < rows; ++r) {
        of_row.push_back(table.data());
        positions.push_back(static_cast<std::int32_t>(context - rows + r));
      }
    return {of_row.data(), positions.data()};
  }

  kernels::KvPool pool;
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<const std::int32_t*> of_row;
  std::vector<std::int32_t> positions;
};

}  // namespace troupe::timing
