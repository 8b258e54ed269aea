#include "model/tensor_reader.h"

#include <emmintrin.h>

#include <cassert>
#include <cstring>
#include <optional>

#include "model/gguf/block_format.h"
#include "model/weight_file.h"

namespace troupe {
namespace {

/// A number is NaN or infinite when all bits of its exponent are set (of e4m3, which has no
/// infinity: and those of its mantissa): one more in the lowest place of these then carries into
/// the place of the sign.
struct Pattern {
  std::size_t size;               ///< of a number
  std::uint32_t exponent, carry;  ///< of every number in 32 bits
};
constexpr Pattern kBf16Pattern = {2, 0x7f80'7f80, 0x8000'8000};
constexpr Pattern kF16Pattern = {2, 0x7c00'7c00, 0x8000'8000};
constexpr Pattern kF32Pattern = {4, 0x7f80'0000, 0x8000'0000};
constexpr Pattern kF8Pattern = {1, 0x7f7f'7f7f, 0x8080'8080};

/// None for whole numbers.
std::optional<Pattern> pattern_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return kBf16Pattern;
    case DType::kF16:
      return kF16Pattern;
    case DType::kF32:
      return kF32Pattern;
    case DType::kF8E4M3:
      return kF8Pattern;
    default:
      return std::nullopt;
  }
}

std::uint32_t word_of(const std::byte* bytes, std::size_t size) {
  std::uint32_t word = 0;
  assert(size <= sizeof word);
  std::memcpy(&word, bytes, size);
  return word;
}

/// The number there.
bool finite(const std::byte* bytes, const Pattern& p) {
  const std::uint32_t word = word_of(bytes, p.size) & p.exponent;
  return ((word + (p.exponent & ~(p.exponent << 1))) & p.carry) == 0;
}

bool all_finite(std::span<const std::byte> bytes, const Pattern& p) {
  const __m128i exponent = _mm_set1_epi32(static_cast<int>(p.exponent));
  const __m128i one = _mm_set1_epi32(static_cast<int>(p.exponent & ~(p.exponent << 1)));
  __m128i found = _mm_setzero_si128();
  std::size_t at = 0;
  for (; at + sizeof found <= bytes.size(); at += sizeof found) {
    const auto four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + at));
    found = _mm_or_si128(found, _mm_add_epi32(_mm_and_si128(four, exponent), one));
  }
  const __m128i carry = _mm_set1_epi32(static_cast<int>(p.carry));
  bool good = _mm_movemask_epi8(
                  _mm_cmpeq_epi32(_mm_and_si128(found, carry), _mm_setzero_si128())) == 0xffff;
  for (; at < bytes.size(); at += p.size) good = good && finite(bytes.data() + at, p);
  return good;
}

/// Scales are above zero, where all that they scale would vanish or turn, and below this: 2^100, or
/// the sign. No weight is that large, and what kernels add to a code before they scale it has room.
std::uint32_t scale_limit(DType dtype) {
  if (dtype == DType::kF32) return 0x7180'0000;
  return dtype == DType::kBf16 ? 0x7180 : 0x8000;
}

/// Without an end before the last, so that the compiler takes many at once.
template <class Word>
bool any_odd_scale(std::span<const std::byte> bytes, Word limit) {
  bool found = false;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    found |= word == 0 || word >= limit;
  }
  return found;
}

bool any_odd_scale(std::span<const std::byte> bytes, DType dtype) {
  const std::uint32_t limit = scale_limit(dtype);
  return dtype == DType::kF32 ? any_odd_scale<std::uint32_t>(bytes, limit)
                              : any_odd_scale(bytes, static_cast<std::uint16_t>(limit));
}

constexpr std::byte kE8M0NaN{0xff}, kE8M0Limit{127 + 100};

}  // namespace

Result<TensorReader> TensorReader::open(const Checkpoint& checkpoint, const std::string& name,
                                        Check check) {
  auto tensor = checkpoint.tensor(name);
  if (!tensor) return tensor.error();
  return TensorReader(checkpoint, std::move(*tensor), check);
}

TensorReader::TensorReader(const Checkpoint& checkpoint, StoredTensor tensor, Check check)
    : checkpoint_(&checkpoint), tensor_(std::move(tensor)), check_(check), hash_(tensor_) {
  if (tensor_.shape.size() >= 2) rows_ = tensor_.shape[0];
  stored_row_bytes_ = static_cast<std::size_t>(tensor_.bytes / static_cast<std::uint64_t>(rows_));
  row_bytes_ = stored_row_bytes_;
  if (const BlockFormat* b = tensor_.blocks)
    row_bytes_ = stored_row_bytes_ / static_cast<std::size_t>(b->bytes) *
                 static_cast<std::size_t>(b->numbers) * sizeof(float);
}

Status TensorReader::read(std::span<std::byte> out) {
  assert(out.size() % row_bytes_ == 0);
  if (tensor_.blocks) {
    blocks_.resize(out.size() / row_bytes_ * stored_row_bytes_);
    if (auto status = fetch(blocks_); !status) return status;
    expand(blocks_, out);
  } else if (auto status = fetch(out); !status) {
    return status;
  }
  if (auto status = look(out); !status) return status;
  row_ += static_cast<std::int64_t>(out.size() / row_bytes_);
  return {};
}

Status TensorReader::fetch(std::span<std::byte> stored) {
  const std::uint64_t from = static_cast<std::uint64_t>(row_) * stored_row_bytes_;
  if (auto status = checkpoint_->read(tensor_, from, stored); !status) return status;
  hash_.add(stored);
  return {};
}

void TensorReader::expand(std::span<const std::byte> stored, std::span<std::byte> out) const {
  const BlockFormat& format = *tensor_.blocks;
  const auto* from = reinterpret_cast<const std::uint8_t*>(stored.data());
  auto* to = reinterpret_cast<float*>(out.data());
  for (std::size_t at = 0; at < stored.size(); at += static_cast<std::size_t>(format.bytes)) {
    format.expand(from + at, to);
    to += format.numbers;
  }
}

/// They would spoil every answer; no model has them.
Status TensorReader::look(std::span<const std::byte> rows) const {
  const auto pattern = pattern_of(dtype());
  const auto told = [&](std::string_view what, std::size_t at) {
    // While its file changes, anything may be in it.
    if (auto status = checkpoint_->confirm(tensor_); !status) return status;
    return Status(wrong(what, row_ + static_cast<std::int64_t>(at / row_bytes_), at % row_bytes_));
  };
  if (pattern && !all_finite(rows, *pattern)) {
    std::size_t at = 0;
    while (finite(rows.data() + at, *pattern)) at += pattern->size;
    return told("a NaN or an infinity", at);
  }
  if (check_ != Check::kScales) return {};
  if (pattern && any_odd_scale(rows, dtype())) {
    std::size_t at = 0;
    const auto odd = [&] { return any_odd_scale(rows.subspan(at, pattern->size), dtype()); };
    while (!odd()) at += pattern->size;
    const std::uint32_t word = word_of(rows.data() + at, pattern->size);
    const std::uint32_t sign = pattern->size == 4 ? 0x8000'0000u : 0x8000u;
    return told(
        word == 0 || word >= sign ? "a scale that is not above zero" : "a scale of 2^100 or more",
        at);
  }
  for (std::size_t at = 0; dtype() == DType::kU8 && at < rows.size(); ++at)
    if (rows[at] >= kE8M0Limit)
      return told(rows[at] == kE8M0NaN ? "a scale that is no number" : "a scale of 2^100 or more",
                  at);
  return {};
}

Error TensorReader::wrong(std::string_view what, std::int64_t row, std::size_t byte_in_row) const {
  const std::size_t number = byte_in_row / dtype_size(dtype());
  const BlockFormat* blocks = tensor_.blocks;
  const std::size_t in_row = blocks ? number / static_cast<std::size_t>(blocks->numbers) *
                                          static_cast<std::size_t>(blocks->bytes)
                                    : byte_in_row;
  const std::uint64_t byte =
      tensor_.offset + static_cast<std::uint64_t>(row) * stored_row_bytes_ + in_row;
  return corrupt(tensor_.file->path() + ": tensor " + tensor_.name + " holds " + std::string(what) +
                 " at [" +
                 (tensor_.shape.size() >= 2 ? std::to_string(row) + ", " : std::string()) +
                 std::to_string(number) + "], byte " + std::to_string(byte) +
                 " of the file; get these weights again");
}

Result<TensorProof> TensorReader::finish() const {
  assert(rows_left() == 0);
  if (auto status = checkpoint_->confirm(tensor_); !status) return status.error();
  return TensorProof{tensor_.name, tensor_.file->name(), hash_.digests(), {}};
}

}  // namespace troupe
