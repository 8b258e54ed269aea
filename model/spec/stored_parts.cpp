#include "model/spec/stored_parts.h"

#include <string_view>

namespace troupe {
namespace {

constexpr std::string_view kPlainSuffix = ".weight";
constexpr DType kPlainTypes[] = {DType::kBf16, DType::kF32, DType::kF16};
constexpr DType kFp8Type[] = {DType::kF8E4M3};
constexpr DType kWordType[] = {DType::kI32};
constexpr DType kByteType[] = {DType::kU8};
constexpr DType kBlockScaleTypes[] = {DType::kF32, DType::kBf16};
constexpr DType kAwqScaleTypes[] = {DType::kF16, DType::kBf16};
constexpr DType kShapeTypes[] = {DType::kI32, DType::kI64};

std::int64_t blocks(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

}  // namespace

std::vector<StoredPart> stored_parts(const WeightSpec& w, std::int32_t expert) {
  const std::string name = name_of(w, expert);
  const std::int64_t rows = w.stored_n() * w.row_step, k = w.stored_k();
  // As most formats store it, and the other way round.
  const StoredAxis axis = w.split == SplitAxis::kOutputs  ? StoredAxis::kRows
                          : w.split == SplitAxis::kInputs ? StoredAxis::kColumns
                                                          : StoredAxis::kNone;
  const StoredAxis turned = w.split == SplitAxis::kOutputs  ? StoredAxis::kColumns
                            : w.split == SplitAxis::kInputs ? StoredAxis::kRows
                                                            : StoredAxis::kNone;
  std::vector<StoredPart> parts;
  const auto add = [&](PartKind kind, const char* suffix, std::span<const DType> dtypes,
                       std::vector<std::int64_t> shape, StoredAxis split) {
    if (w.stacked > 0) shape.insert(shape.begin(), w.stacked);
    parts.push_back({kind, name + suffix, dtypes, std::move(shape), split});
  };
  switch (w.format) {
    case StoredFormat::kPlain:
      if (w.precision == Precision::kVector)
        add(PartKind::kCodes, "", kPlainTypes, {k * w.row_step}, StoredAxis::kNone);
      else
        add(PartKind::kCodes, "", kPlainTypes, {rows, k}, axis);
      break;
    case StoredFormat::kFp8Blocks:
      add(PartKind::kScales, ".weight_scale_inv", kBlockScaleTypes,
          {blocks(rows, kFp8Block), blocks(k, kFp8Block)}, axis);
      add(PartKind::kCodes, ".weight", kFp8Type, {rows, k}, axis);
      break;
    case StoredFormat::kFp8Channels:
      add(PartKind::kScales, ".weight_scale", kPlainTypes, {rows, 1}, axis);
      add(PartKind::kCodes, ".weight", kFp8Type, {rows, k}, axis);
      break;
    case StoredFormat::kInt4Packed:
      add(PartKind::kScales, ".weight_scale", kPlainTypes, {rows, k / w.group}, axis);
      add(PartKind::kShape, ".weight_shape", kShapeTypes, {2}, StoredAxis::kNone);
      add(PartKind::kCodes, ".weight_packed", kWordType, {rows, k / 8}, axis);
      break;
    case StoredFormat::kInt4Awq:
      add(PartKind::kScales, ".scales", kAwqScaleTypes, {k / w.group, rows}, turned);
      add(PartKind::kZeros, ".qzeros", kWordType, {k / w.group, rows / 8}, turned);
      add(PartKind::kCodes, ".qweight", kWordType, {k, rows / 8}, turned);
      break;
    case StoredFormat::kMxfp4:
      add(PartKind::kScales, "_scales", kByteType, {rows, k / w.group}, axis);
      add(PartKind::kCodes, "_blocks", kByteType, {rows, k / w.group, w.group / 2}, axis);
      break;
  }
  return parts;
}

WeightSpec stored_as(const WeightSpec& weight, const StoredForm& form) {
  WeightSpec out = weight;
  if (out.format == StoredFormat::kPlain && out.name.ends_with(kPlainSuffix))
    out.name.resize(out.name.size() - kPlainSuffix.size());
  if (form.format == StoredFormat::kPlain) out.name += kPlainSuffix;
  out.format = form.format;
  out.dtype = form.dtype;
  out.group = form.group;
  return out;
}

}  // namespace troupe
