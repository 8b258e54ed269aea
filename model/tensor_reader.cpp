#include "model/tensor_reader.h"

#include <emmintrin.h>

#include <cassert>
#include <cstring>

#include "model/weight_file.h"

namespace troupe {
namespace {

/// A number is NaN or infinite when all bits of its exponent are set: one more in the exponent's
/// lowest place then carries into the place of the sign.
struct Pattern {
  std::size_t size;               ///< of a number
  std::uint32_t exponent, carry;  ///< of every number in 32 bits
};
constexpr Pattern kBf16Pattern = {2, 0x7f80'7f80, 0x8000'8000};
constexpr Pattern kF32Pattern = {4, 0x7f80'0000, 0x8000'0000};

/// The number there.
bool finite(const std::byte* bytes, const Pattern& p) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, p.size);
  word &= p.exponent;
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
  bool good = _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_and_si128(found, carry),
                                                _mm_setzero_si128())) == 0xffff;
  for (; at < bytes.size(); at += p.size) good = good && finite(bytes.data() + at, p);
  return good;
}

}  // namespace

Result<TensorReader> TensorReader::open(const Checkpoint& checkpoint, const std::string& name,
                                        std::span<const std::int64_t> shape) {
  const auto tensor = checkpoint.tensor(name, kWeightDTypes, shape);
  if (!tensor) return tensor.error();
  return TensorReader(checkpoint, *tensor);
}

TensorReader::TensorReader(const Checkpoint& checkpoint, const StoredTensor& tensor)
    : checkpoint_(&checkpoint), tensor_(tensor), hash_(*tensor.info, split_axis(tensor.name)) {
  const TensorInfo& info = *tensor.info;
  if (info.shape.size() == 2) rows_ = info.shape[0];
  row_bytes_ = static_cast<std::size_t>(info.bytes / static_cast<std::uint64_t>(rows_));
}

Status TensorReader::read(std::span<std::byte> out) {
  assert(out.size() % row_bytes_ == 0);
  const std::uint64_t from = static_cast<std::uint64_t>(row_) * row_bytes_;
  if (auto status = checkpoint_->read(tensor_, from, out); !status) return status;
  hash_.add(out);
  if (auto status = check(out); !status) return status;
  row_ += static_cast<std::int64_t>(out.size() / row_bytes_);
  return {};
}

/// They would spoil every answer; no model has them.
Status TensorReader::check(std::span<const std::byte> rows) const {
  const Pattern& pattern = dtype() == DType::kF32 ? kF32Pattern : kBf16Pattern;
  if (all_finite(rows, pattern)) return {};
  std::size_t at = 0;
  while (finite(rows.data() + at, pattern)) at += pattern.size;
  // While its file changes, anything may be in it.
  if (auto status = checkpoint_->confirm(tensor_); !status) return status;
  const std::uint64_t row = static_cast<std::uint64_t>(row_) + at / row_bytes_;
  const std::uint64_t column = at % row_bytes_ / pattern.size;
  return corrupt(tensor_.file->path() + ": tensor " + std::string(tensor_.name) +
                 " holds a NaN or an infinity at [" +
                 (tensor_.info->shape.size() == 2 ? std::to_string(row) + ", " : std::string()) +
                 std::to_string(column) + "], byte " +
                 std::to_string(tensor_.offset + row * row_bytes_ + column * pattern.size) +
                 " of the file; get these weights again");
}

Result<TensorProof> TensorReader::finish() const {
  assert(rows_left() == 0);
  if (auto status = checkpoint_->confirm(tensor_); !status) return status.error();
  return TensorProof{std::string(tensor_.name), tensor_.file->name(), hash_.digests(), {}};
}

}  // namespace troupe
