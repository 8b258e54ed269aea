#include "model/weight_loader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "model/awq.h"
#include "model/spec/held_forms.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

using kernels::StoredMatrix;
using kernels::Weight;
using kernels::WeightPacker;

/// Rows are read about so many bytes at a time: they stay in the cache between reading, digesting
/// and packing.
constexpr std::size_t kReadBytes = 256u << 10;

/// How many weights at the front of a list share a tensor.
std::size_t sharing(std::span<const WeightSpec> weights) {
  std::size_t count = 1;
  while (count < weights.size() && weights[count].name == weights[0].name) ++count;
  return count;
}

Error packing(const WeightSpec& weight, const Error& error) {
  return {error.code, "packing the weight " + weight.name + ": " + error.message};
}

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

std::int64_t blocks(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

/// What a tensor-parallel rank's part is scaled with, of what all of the tensor is.
WeightLoader::Side side_of_part(const WeightSpec& w, const WeightLoader::Side& whole) {
  const kernels::Scales all = whole_matrix(w).scales;
  const kernels::Scales own = stored_matrix(w).scales;
  const std::size_t number = dtype_size(all.dtype);
  const std::int64_t rows = blocks(w.n, own.block_n), columns = blocks(w.k, own.block_k);
  const std::int64_t all_columns = blocks(w.stored_k(), all.block_k);
  const std::int64_t top = w.split == SplitAxis::kOutputs ? w.part_first : 0;
  const std::int64_t left = w.split == SplitAxis::kInputs ? w.part_first : 0;
  WeightLoader::Side side{Buffer::uninitialized(size(rows * columns) * number), {}};
  if (all.zeros) side.zeros.resize(size(rows * columns));
  for (std::int64_t to = 0; to < rows * columns; ++to) {
    const std::int64_t row = (top + to / columns * own.block_n) / all.block_n;
    const std::int64_t column = (left + to % columns * own.block_k) / all.block_k;
    const std::size_t from = size(row * all_columns + column);
    std::memcpy(side.scales.data() + size(to) * number, whole.scales.data() + from * number,
                number);
    if (all.zeros) side.zeros[size(to)] = whole.zeros[from];
  }
  return side;
}

/// What rows [first, first + rows) of every head are scaled with, head after head, each turned if
/// its codes are. Blocks of scales end where these rows do.
WeightLoader::Side side_of_heads(const StoredMatrix& kv_b, const AttentionSpec& a,
                                 std::int64_t first, std::int64_t rows, bool turned) {
  const kernels::Scales& s = kv_b.scales;
  const std::size_t number = dtype_size(s.dtype);
  const std::int64_t columns = (kv_b.k + s.block_k - 1) / s.block_k, some = rows / s.block_n;
  const std::size_t count = size(a.heads * some * columns);
  WeightLoader::Side side{Buffer::uninitialized(count * number), {}};
  if (s.zeros) side.zeros.resize(count);
  std::size_t to = 0;
  for (std::int64_t h = 0; h < a.heads; ++h) {
    const std::int64_t top = (h * (a.nope + a.v_head) + first) / s.block_n;
    for (std::int64_t i = 0; i < some * columns; ++i, ++to) {
      const std::int64_t row = turned ? i % some : i / columns;
      const std::int64_t column = turned ? i / some : i % columns;
      const std::size_t from = size((top + row) * columns + column);
      std::memcpy(side.scales.data() + to * number, s.data + from * number, number);
      if (s.zeros) side.zeros[to] = s.zeros[from];
    }
  }
  return side;
}

/// Bytes from one row of codes to the next.
std::int64_t stride_of(const WeightSpec& w, const TensorReader& codes) {
  return w.format == StoredFormat::kInt4Awq ? w.stored_k() / 2
                                            : static_cast<std::int64_t>(codes.row_bytes());
}

/// Where a rank's part of a row begins.
std::int64_t first_byte(const WeightSpec& w, std::int64_t stride) {
  return w.split == SplitAxis::kInputs ? stride * w.part_first / w.stored_k() : 0;
}

}  // namespace

void WeightLoader::load(std::span<const WeightSpec> weights, const AttentionSpec& attention,
                        std::int32_t expert, const Place& place) {
  while (status_.ok() && !weights.empty()) {
    const std::size_t count = sharing(weights);
    for (auto& [role, weight] : load_tensor(weights.first(count), attention, expert))
      place(role, std::move(weight));
    weights = weights.subspan(count);
  }
}

WeightLoader::Packed WeightLoader::load_tensor(std::span<const WeightSpec> weights,
                                               const AttentionSpec& attention,
                                               std::int32_t expert) {
  const WeightSpec& w = weights[0];
  Packed packed;
  Side side;
  for (const StoredPart& part : stored_parts(w, expert)) {
    const std::string name =
        w.stacked > 0 ? part.name + "[" + std::to_string(expert) + "]" : part.name;
    const bool scales = part.kind == PartKind::kScales, codes = part.kind == PartKind::kCodes;
    auto in = TensorReader::open(
        checkpoint_, name, scales ? TensorReader::Check::kScales : TensorReader::Check::kFinite);
    if (!in) {
      status_ = in.error();
      return {};
    }
    if (codes && w.part_of > 0 && side.scales.size() > 0) side = side_of_part(w, side);
    if (!codes)
      status_ = read_side(w, part.kind, *in, side);
    else if (w.precision == Precision::kVector)
      status_ = pack_vectors(weights, *in, packed);
    else if (w.role == WeightRole::kKvB)
      status_ = pack_heads(w, attention, *in, side, packed);
    else
      status_ = pack_rows(weights, *in, side, packed);
    if (status_) status_ = keep(*in, codes ? &packed : nullptr, w.part_of > 0);
    if (!status_) return {};
  }
  return packed;
}

Status WeightLoader::read_side(const WeightSpec& w, PartKind kind, TensorReader& in, Side& side) {
  auto read = read_whole(in);
  if (!read) return read.error();
  const bool turned = w.format == StoredFormat::kInt4Awq;
  const std::int64_t n = w.stored_n(), k = w.stored_k(), groups = turned ? k / w.group : 0;
  if (kind == PartKind::kShape) {
    std::array<std::int64_t, 2> told{};
    for (std::size_t i = 0; i < 2; ++i)
      std::memcpy(&told[i], read->data() + i * dtype_size(in.dtype()), dtype_size(in.dtype()));
    if (told == std::array<std::int64_t, 2>{n, k}) return {};
    return in.wrong("another shape than [" + std::to_string(n) + ", " + std::to_string(k) + "]", 0,
                    0);
  }
  if (kind == PartKind::kZeros) {
    side.zeros.resize(size(n * groups));
    awq::zeros_to_rows(read->span(), n, groups, side.zeros.data());
  } else if (turned) {
    side.scales = Buffer::uninitialized(read->size());
    awq::scales_to_rows(read->span(), n, groups, side.scales.data());
  } else {
    side.scales = std::move(*read);
  }
  return {};
}

Status WeightLoader::pack_rows(std::span<const WeightSpec> weights, TensorReader& codes,
                               const Side& side, Packed& packed) {
  const std::int64_t step = weights[0].row_step;
  std::vector<WeightPacker> packers;
  std::vector<Buffer> scales(weights.size());  // of each, where they share a tensor
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const WeightSpec& w = weights[i];
    StoredMatrix stored = stored_matrix(w);
    if (stored.scales.data) stored.scales.data = side.scales.data();
    if (stored.scales.zeros) stored.scales.zeros = side.zeros.data();
    if (stored.scales.data && step > 1) {
      const std::size_t row = side.scales.size() / size(w.n * step);
      scales[i] = Buffer::uninitialized(row * size(w.n));
      for (std::size_t r = 0; r < size(w.n); ++r)
        std::memcpy(scales[i].data() + r * row,
                    side.scales.data() + (size(w.first_row) + r * size(step)) * row, row);
      stored.scales.data = scales[i].data();
    }
    kernels::PackOptions options = held_forms(w, {}, numerics_).front().options;
    auto packer = WeightPacker::begin(numerics_, stored, options);
    if (!packer) return packing(w, packer.error());
    packers.push_back(std::move(*packer));
  }
  auto status = each_piece(weights[0], codes, WeightPacker::kRows * step,
                           [&](const std::byte* rows, std::int64_t count) {
                             const std::int64_t stride = stride_of(weights[0], codes);
                             const std::byte* const left = rows + first_byte(weights[0], stride);
                             for (std::size_t i = 0; i < weights.size(); ++i)
                               packers[i].add(left + weights[i].first_row * stride, count / step,
                                              stride * step);
                             return Status();
                           });
  if (!status) return status;
  for (std::size_t i = 0; i < weights.size(); ++i)
    packed.emplace_back(weights[i].role, packers[i].take());
  return {};
}

/// kv_b_proj [heads * (nope + v), kv_lora], a head at a time: W_UK is turned, W_UV is not.
Status WeightLoader::pack_heads(const WeightSpec& w, const AttentionSpec& a, TensorReader& codes,
                                const Side& side, Packed& packed) {
  StoredMatrix stored = stored_matrix(w);
  if (stored.scales.data) stored.scales.data = side.scales.data();
  if (stored.scales.zeros) stored.scales.zeros = side.zeros.data();
  std::vector<WeightPacker> packers;  // W_UK, W_UV
  auto forms = held_forms(w, a, numerics_);
  std::array<Side, 2> sides;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    HeldForm& form = forms[i];
    if (form.stored.scales.data) {
      sides[i] = i == 0 ? side_of_heads(stored, a, 0, a.nope, true)
                        : side_of_heads(stored, a, a.nope, a.v_head, false);
      form.stored.scales.data = sides[i].scales.data();
      if (form.stored.scales.zeros) form.stored.scales.zeros = sides[i].zeros.data();
    }
    auto packer = WeightPacker::begin(numerics_, form.stored, form.options, form.groups);
    if (!packer) return packing(w, packer.error());
    packers.push_back(std::move(*packer));
  }
  const auto bytes_of_row = [&](const StoredMatrix& m) {
    return w.k * kernels::code_bits(m.codes) / 8;
  };
  const std::int64_t head_rows = a.nope + a.v_head, code_bytes = bytes_of_row(stored);
  // What is not held as it is stored is decoded first, since one of the two is turned.
  const auto decodes = [&](const HeldForm& form) { return form.stored.codes != stored.codes; };
  const StoredMatrix* plain = nullptr;
  for (const HeldForm& form : forms)
    if (decodes(form)) plain = &form.stored;
  Buffer decoded(plain ? size(head_rows * bytes_of_row(*plain)) : 0);
  std::int64_t row = 0;
  const auto status = each_piece(w, codes, head_rows, [&](const std::byte* rows, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += head_rows, row += head_rows) {
      const std::byte* const head = rows + i * code_bytes;
      if (plain) kernels::decode_rows(numerics_, stored, head, row, head_rows, decoded.data());
      const auto from = [&](std::size_t form) {
        return decodes(forms[form]) ? decoded.data() : head;
      };
      const std::int64_t value_bytes = bytes_of_row(forms[1].stored);
      packers[0].add_transposed(from(0), bytes_of_row(forms[0].stored));
      packers[1].add(from(1) + a.nope * value_bytes, a.v_head, value_bytes);
    }
    return Status();
  });
  if (!status) return status;
  for (std::size_t i = 0; i < forms.size(); ++i)
    packed.emplace_back(forms[i].role, packers[i].take());
  return {};
}

Status WeightLoader::pack_vectors(std::span<const WeightSpec> weights, TensorReader& numbers,
                                  Packed& packed) {
  const auto read = read_whole(numbers);
  if (!read) return read.error();
  const std::size_t number = dtype_size(numbers.dtype());
  for (const WeightSpec& w : weights) {
    Buffer own = Buffer::uninitialized(size(w.k) * number);
    for (std::size_t i = 0; i < size(w.k); ++i)
      std::memcpy(
          own.data() + i * number,
          read->data() + (size(w.first_row) + (size(w.part_first) + i) * size(w.row_step)) * number,
          number);
    const HeldForm form = held_forms(w, {}, numerics_).front();
    auto packer = WeightPacker::begin(numerics_, form.stored, form.options);
    if (!packer) return packing(w, packer.error());
    packer->add(own.data(), 1);
    packed.emplace_back(w.role, packer->take());
  }
  return {};
}

Result<Buffer> WeightLoader::read_whole(TensorReader& in) {
  Buffer whole = Buffer::uninitialized(in.bytes());
  const std::int64_t fit = static_cast<std::int64_t>(kReadBytes / in.row_bytes());
  std::size_t at = 0;
  while (in.rows_left() > 0) {
    if (auto status = wanted(); !status) return status.error();
    const std::int64_t count = std::min(std::max<std::int64_t>(fit, 1), in.rows_left());
    const std::size_t bytes = size(count) * in.row_bytes();
    if (auto status = in.read(whole.span().subspan(at, bytes)); !status) return status.error();
    at += bytes;
  }
  return whole;
}

Status WeightLoader::each_piece(const WeightSpec& w, TensorReader& in, std::int64_t granule,
                                const TakeRows& take) {
  const bool some = w.part_of > 0 && w.split == SplitAxis::kOutputs;
  if (w.format == StoredFormat::kInt4Awq) {
    const auto words = read_whole(in);
    if (!words) return words.error();
    Buffer rows = Buffer::uninitialized(words->size());
    awq::to_rows(words->span(), w.stored_n(), w.stored_k(), rows.data());
    return take(rows.data() + (some ? w.part_first * stride_of(w, in) : 0), w.n);
  }
  // All rows are read, for the digests; those of other ranks are passed over.
  const TakeRows pass_over = [](const std::byte*, std::int64_t) { return Status(); };
  if (!some) return read_rows(in, in.rows_left(), granule, take);
  if (auto status = read_rows(in, w.part_first, granule, pass_over); !status) return status;
  if (auto status = read_rows(in, w.n, granule, take); !status) return status;
  return read_rows(in, in.rows_left(), granule, pass_over);
}

Status WeightLoader::read_rows(TensorReader& in, std::int64_t rows, std::int64_t granule,
                               const TakeRows& take) {
  const std::int64_t fit = static_cast<std::int64_t>(kReadBytes / in.row_bytes());
  const std::int64_t most = std::max<std::int64_t>(fit / granule, 1) * granule;
  const std::size_t needed = size(std::min(most, rows)) * in.row_bytes();
  if (room_.size() < needed) room_ = Buffer::uninitialized(needed);
  while (rows > 0) {
    if (auto status = wanted(); !status) return status;
    const std::int64_t count = std::min(most, rows);
    const auto bytes = room_.span().first(size(count) * in.row_bytes());
    if (auto status = in.read(bytes); !status) return status;
    if (auto status = take(room_.data(), count); !status) return status;
    rows -= count;
  }
  return {};
}

Status WeightLoader::wanted() const {
  return goes_on_ && !goes_on_() ? Status(cancelled("Nobody wants these weights any more."))
                                 : Status();
}

Status WeightLoader::keep(const TensorReader& in, const Packed* packed, bool part) {
  auto proof = in.finish();
  if (!proof) return proof.error();
  HeldTensor held;
  held.second_form = part;
  if (packed) {
    Xxh3 digest;
    for (const auto& [role, weight] : *packed) {
      digest.add(weight.memory());
      held.memory.push_back(weight.memory());
    }
    proof->packed = digest.digest();
  }
  held.proof = std::move(*proof);
  tensors_.push_back(std::move(held));
  return {};
}

}  // namespace troupe
