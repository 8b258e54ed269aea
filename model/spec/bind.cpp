#include "model/spec/bind.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

/// Columns that must come in whole groups, or be packed into whole words.
Status check_groups(const WeightSpec& w, const std::string& name) {
  const bool grouped = w.format == StoredFormat::kInt4Packed ||
                       w.format == StoredFormat::kInt4Awq || w.format == StoredFormat::kMxfp4;
  if (!grouped) return {};
  if (w.k % w.group != 0)
    return corrupt("the weight " + name + " has " + std::to_string(w.k) +
                   " columns, which groups of " + std::to_string(w.group) + " do not divide");
  if (w.format == StoredFormat::kInt4Awq && w.n % 8 != 0)
    return corrupt("the weight " + name + " has " + std::to_string(w.n) +
                   " rows, but AWQ packs them by eight");
  return {};
}

class Binder {
 public:
  Binder(TensorDirectory& directory, const std::vector<StoredForm>& forms)
      : directory_(directory), forms_(forms) {}

  /// Settles how one weight is stored.
  Status settle(WeightSpec& w, std::int32_t expert = 0) {
    if (!is_there(w, expert)) w = as_stored(w, expert);
    if (auto status = check_groups(w, name_of(w, expert)); !status) return status;
    for (const StoredPart& part : stored_parts(w, expert)) {
      const auto entry = directory_.expect(part);
      if (!entry) return entry.error();
      directory_.note(part, w.stacked > 0);
      // The scales' where there are some, which come first; else the numbers' own.
      if (part.kind == PartKind::kScales || w.format == StoredFormat::kPlain)
        w.dtype = (*entry)->info.dtype;
    }
    return {};
  }

  /// Of a head and an embedding that the configuration ties, what is stored decides, as for
  /// transformers since version 5: another head counts, and if there is only one, it is both.
  void untie(ModelSpec& spec) {
    WeightSpec& embedding = spec.first.front();
    for (WeightSpec& head : spec.last) {
      if (head.role != WeightRole::kHead || head.name != embedding.name) continue;
      WeightSpec own = head;
      own.name = "lm_head.weight";
      if (!directory_.find(embedding.name) && directory_.find(own.name))
        embedding.name = head.name = own.name;
      own.converts = true;
      own = as_stored(own, 0);
      if (head.name != own.name && (is_there(own, 0) || has_codes(own, 0))) head = own;
    }
  }

  Status settle_experts(LayerSpec& layer) {
    const std::vector<WeightSpec> told = layer.expert;
    for (WeightSpec& w : layer.expert)
      if (auto status = settle(w); !status) return status;
    for (std::size_t i = 0; i < told.size(); ++i) {
      if (told[i].stacked > 0) continue;
      const WeightSpec& first = layer.expert[i];
      for (std::int32_t e = 1; e < layer.experts.gate.experts; ++e) {
        WeightSpec other = told[i];
        if (auto status = settle(other, e); !status) return status;
        if (other.format != first.format || other.dtype != first.dtype ||
            other.group != first.group)
          return corrupt("the weight " + name_of(other, e) + " is stored in another format than " +
                         name_of(first, 0) + "; all experts of a layer should have the same");
      }
    }
    return {};
  }

 private:
  bool is_there(const WeightSpec& w, std::int32_t expert) const {
    return std::ranges::all_of(stored_parts(w, expert), [&](const StoredPart& part) {
      return directory_.expect(part).ok();
    });
  }

  bool has_codes(const WeightSpec& w, std::int32_t expert) const {
    const StoredPart codes = stored_parts(w, expert).back();
    const auto* entry = directory_.find(codes.name);
    return entry && std::ranges::find(codes.dtypes, entry->info.dtype) != codes.dtypes.end();
  }

  /// What is stored decides, not whether a list of the config names it. If nothing is stored as it
  /// should be: what that is a defect of.
  WeightSpec as_stored(const WeightSpec& told, std::int32_t expert) const {
    if (!told.converts || told.stacked > 0) return told;
    std::vector<WeightSpec> ways = {told, stored_as(told, {})};
    for (const StoredForm& form : forms_) ways.push_back(stored_as(told, form));
    for (const WeightSpec& way : ways)
      if (is_there(way, expert)) return way;
    for (const WeightSpec& way : ways)
      if (has_codes(way, expert)) return way;
    return told;
  }

  TensorDirectory& directory_;
  const std::vector<StoredForm>& forms_;
};

/// What checkpoints carry along: tables that are computed; scales and zero points of activations,
/// caches and attention's products, which are not quantised here as they would have it; zero points
/// of symmetric weights, which are zero.
constexpr std::string_view kCarriedAlong[] = {
    ".inv_freq",    ".attn_rot_embd", ".attn_rot_embd.weight", ".masked_bias",
    ".attn.bias",   ".input_scale",   ".input_zero_point",     ".input_global_scale",
    "output_scale", ".q_scale",       "output_zero_point",     ".q_zero_point",
    ".k_scale",     ".v_scale",       ".k_zero_point",         ".v_zero_point",
    ".kv_scale",    ".prob_scale",    ".weight_zero_point",    ".g_idx"};

bool changes_nothing(const std::string& name) {
  return name.find("rotary_emb.") != std::string::npos ||
         std::ranges::any_of(kCarriedAlong, [&](auto end) { return name.ends_with(end); });
}

}  // namespace

bool is_of_mtp(const std::string& name, const ModelSpec& spec) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::int64_t layer = std::strtol(name.c_str() + kLayers.size(), nullptr, 10);
  return layer >= spec.num_layers() && layer < spec.num_layers() + spec.mtp_layers;
}

Result<ModelSpec> bind_spec(ModelSpec spec, TensorDirectory& directory) {
  Binder binder(directory, spec.forms);
  Status status;
  const auto settle_all = [&](std::vector<WeightSpec>& weights) {
    for (WeightSpec& w : weights)
      if (status) status = binder.settle(w);
  };
  binder.untie(spec);
  settle_all(spec.first);
  settle_all(spec.last);
  for (LayerSpec& layer : spec.layers) {
    settle_all(layer.weights);
    if (status) status = binder.settle_experts(layer);
  }
  if (!status) return status.error();
  for (const auto& [name, entry] : directory.entries())
    if (!entry.used && !changes_nothing(name) && !is_of_mtp(name, spec))
      return corrupt(directory.named(name, entry) +
                     " has no place in the model that the configuration describes, which would be "
                     "another one without it");
  return spec;
}

}  // namespace troupe
