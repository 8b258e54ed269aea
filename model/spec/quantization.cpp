#include "model/spec/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json_reader.h"
#include "model/spec/name_patterns.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr const char* kMethods =
    "\"fp8\" (blocks of 128 x 128), \"compressed-tensors\" (FP8 by channel, int4 by group), "
    "\"awq\" or \"mxfp4\", the ones supported";

std::int64_t group_size(JsonReader& in) {
  const auto group = in.integer_or("group_size", -1, -1, 1 << 16);
  if (in.ok() && group != 32 && group != 64 && group != 128)
    in.fail("group_size", "32, 64 or 128, the ones supported");
  return group;
}

StoredForm read_fp8(JsonReader& in) {
  if (in.string_or("fmt", "e4m3") != "e4m3") in.fail("fmt", "\"e4m3\"");
  const auto scales = in.string_or("scale_fmt", "float");
  if (scales != "float" && scales != "ue8m0") in.fail("scale_fmt", "\"ue8m0\" or absent");
  const Json blocks = Json::array({kFp8Block, kFp8Block});
  if (const Json* given = in.find("weight_block_size"); !given || *given != blocks)
    in.fail("weight_block_size", "[128, 128], since other scales are not supported");
  return {StoredFormat::kFp8Blocks, DType::kF32, 0};
}

StoredForm read_awq(JsonReader& in) {
  if (in.integer_or("bits", 4, 1, 64) != 4) in.fail("bits", "4");
  const auto group = group_size(in);
  std::string version = in.string_or("version", "gemm");
  for (char& c : version)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (version != "gemm") in.fail("version", "\"gemm\"");
  if (!in.boolean_or("zero_point", true)) in.fail("zero_point", "true");
  return {StoredFormat::kInt4Awq, DType::kF16, group};
}

/// What compressed-tensors may do beside rounding: weights that are stored rotated, or without
/// their zeros.
void refuse_what_changes_products(JsonReader& in) {
  const Json* turned = in.find("transform_config");
  if (turned && !turned->is_null() && !turned->empty())
    in.fail("transform_config", "absent, since rotated weights are not supported");
  const Json* sparse = in.find("sparsity_config");
  if (sparse && sparse->is_object() && sparse->value("format", Json("dense")) != "dense")
    in.fail("sparsity_config", "absent or dense, since sparse weights are not supported");
  const auto format = in.string_or("format", "pack-quantized");
  if (format.find("24") != std::string::npos)
    in.fail("format", "one without 2:4 sparsity, which is not supported");
}

/// `weights` of one of compressed-tensors' config_groups.
StoredForm read_compressed(JsonReader& in) {
  const auto type = in.string("type");
  const auto bits = in.integer("num_bits", 1, 64);
  const bool fp8 = type == "float" && bits == 8, int4 = type == "int" && bits == 4;
  if (in.ok() && !fp8 && !int4) {
    constexpr const char* kSupported = "; supported are \"float\" of 8 bits (FP8) and \"int\" of 4";
    if (type != "float" && type != "int")
      in.fail("type", std::string("\"float\" or \"int\"") + kSupported);
    else
      in.fail("num_bits", (type == "float" ? "8" : "4") + std::string(" where type is \"") + type +
                              "\"" + kSupported);
  }
  if (!in.boolean_or("symmetric", true))
    in.fail("symmetric", "true, since zero points are not supported here");
  if (in.boolean_or("dynamic", false)) in.fail("dynamic", "false");
  const auto order = in.string_or("actorder", "static");
  if (order != "static" && order != "weight")
    in.fail("actorder", "null or \"static\", since reordered columns are not supported");
  const auto strategy = in.string("strategy");
  if (!in.ok()) return {};
  if (fp8) {
    if (strategy != "channel") in.fail("strategy", "\"channel\", the one supported for FP8 here");
    return {StoredFormat::kFp8Channels, DType::kBf16, 0};
  }
  if (strategy != "group") in.fail("strategy", "\"group\", the one supported for int4");
  return {StoredFormat::kInt4Packed, DType::kBf16, group_size(in)};
}

/// The list's patterns, with an error that names its key.
std::unique_ptr<NamePatterns> patterns(JsonReader& in, const char* key,
                                       NamePatterns::Syntax syntax) {
  const auto list = in.strings(key);
  if (!in.ok()) return nullptr;
  auto compiled = NamePatterns::compile(list, syntax);
  if (compiled) return std::make_unique<NamePatterns>(std::move(*compiled));
  in.fail(key, "a list of names, but it " + compiled.error().message);
  return nullptr;
}

}  // namespace

Quantization::Quantization() = default;
Quantization::~Quantization() = default;
Quantization::Quantization(Quantization&&) noexcept = default;
Quantization& Quantization::operator=(Quantization&&) noexcept = default;

Result<Quantization> Quantization::parse(const Json* value, const std::string& file) {
  Quantization found;
  if (!value) return found;
  JsonReader in(*value, file + ", quantization_config");
  const auto method = in.string("quant_method");
  if (!in.ok()) return in.status().error();
  using Syntax = NamePatterns::Syntax;
  if (method == "fp8") {
    found.groups_.push_back({read_fp8(in), true, nullptr});
    found.ignored_ = patterns(in, "modules_to_not_convert", Syntax::kPart);
  } else if (method == "awq") {
    found.groups_.push_back({read_awq(in), true, nullptr});
    found.ignored_ = patterns(in, "modules_to_not_convert", Syntax::kPart);
  } else if (method == "mxfp4") {
    found.groups_.push_back({{StoredFormat::kMxfp4, DType::kU8, 32}, true, nullptr});
    found.ignored_ = patterns(in, "modules_to_not_convert", Syntax::kPrefix);
    found.converts_linear_ = false;
  } else if (method == "compressed-tensors") {
    found.ignored_ = patterns(in, "ignore", Syntax::kExactOrRegex);
    found.converts_head_ = true;
    refuse_what_changes_products(in);
    if (!in.ok()) return in.status().error();
    if (auto status = found.read_groups(in.find("config_groups"), file); !status)
      return status.error();
  } else {
    in.fail("quant_method", kMethods);
  }
  if (!in.ok()) return in.status().error();
  return found;
}

Status Quantization::read_groups(const Json* value, const std::string& file) {
  const std::string where = file + ", quantization_config, config_groups";
  // No groups: only caches are quantised, which is not done here.
  if (!value || !value->is_object())
    return corrupt(where + " should be an object of groups of modules");
  for (const auto& [name, entry] : value->items()) {
    JsonReader group(entry, where + ", " + name.substr(0, 64));
    Group added;
    added.all_linear = false;
    for (const auto& target : group.strings("targets")) added.all_linear |= target == "Linear";
    added.targets = patterns(group, "targets", NamePatterns::Syntax::kExactOrRegex);
    if (!group.has("weights")) group.fail("weights", "an object");
    if (!group.ok()) return group.status();
    JsonReader weights(*group.find("weights"), where + ", " + name.substr(0, 64) + ", weights");
    if (!weights.ok()) return weights.status();
    added.form = read_compressed(weights);
    if (!weights.ok()) return weights.status();
    groups_.push_back(std::move(added));
  }
  return {};
}

Result<StoredForm> Quantization::form_of(const std::string& module, ModuleKind kind) const {
  const bool converted = kind == ModuleKind::kStackedExperts ? !converts_linear_
                         : kind == ModuleKind::kHead         ? converts_head_
                                                             : converts_linear_;
  if (groups_.empty() || !converted) return StoredForm{};
  // Plain ones are stored in another order, so there is but one way.
  if (kind == ModuleKind::kStackedExperts) return groups_.front().form;
  const auto ignored = ignored_->match(module);
  if (!ignored) return ignored.error();
  if (*ignored) return StoredForm{};
  for (const Group& group : groups_) {
    if (group.all_linear) return group.form;
    const auto meant = group.targets->match(module);
    if (!meant) return meant.error();
    if (*meant) return group.form;
  }
  return StoredForm{};
}

std::vector<StoredForm> Quantization::forms() const {
  std::vector<StoredForm> forms;
  for (const Group& group : groups_)
    if (std::ranges::find(forms, group.form) == forms.end()) forms.push_back(group.form);
  return forms;
}

}  // namespace troupe
