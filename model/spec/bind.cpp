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
  explicit Binder(TensorDirectory& directory) : directory_(directory) {}

  /// Settles how one weight is stored.
  Status settle(WeightSpec& w, std::int32_t expert = 0) {
    if (w.format != StoredFormat::kPlain && w.format != StoredFormat::kMxfp4 && is_plain(w, expert))
      w = plain_form(w);
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
        if (other.format != first.format || other.dtype != first.dtype)
          return corrupt("the weight " + name_of(other, e) + " is stored in another format than " +
                         name_of(first, 0) + "; all experts of a layer should have the same");
      }
    }
    return {};
  }

 private:
  bool is_plain(const WeightSpec& w, std::int32_t expert) const {
    const auto* entry = directory_.find(name_of(w, expert) + ".weight");
    const auto plain = plain_dtypes();
    return entry && std::find(plain.begin(), plain.end(), entry->info.dtype) != plain.end();
  }

  TensorDirectory& directory_;
};

/// What checkpoints carry along: tables that are computed, and scales of activations and caches,
/// which are not quantised as they would have it.
constexpr std::string_view kCarriedAlong[] = {".rotary_emb.inv_freq",
                                              ".input_scale",
                                              ".k_scale",
                                              ".v_scale",
                                              ".kv_scale",
                                              ".masked_bias",
                                              ".attn.bias",
                                              ".q_scale",
                                              ".input_global_scale",
                                              ".g_idx",
                                              "rope_freqs.weight"};

bool changes_nothing(const std::string& name, const ModelSpec& spec) {
  if (std::ranges::any_of(kCarriedAlong, [&](auto end) { return name.ends_with(end); }))
    return true;
  if (name == "lm_head.weight") return true;  // the head is the embedding
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::int64_t layer = std::strtol(name.c_str() + kLayers.size(), nullptr, 10);
  return layer >= spec.num_layers() && layer < spec.num_layers() + spec.mtp_layers;
}

}  // namespace

Result<ModelSpec> bind_spec(ModelSpec spec, TensorDirectory& directory) {
  Binder binder(directory);
  Status status;
  const auto settle_all = [&](std::vector<WeightSpec>& weights) {
    for (WeightSpec& w : weights)
      if (status) status = binder.settle(w);
  };
  settle_all(spec.first);
  settle_all(spec.last);
  for (LayerSpec& layer : spec.layers) {
    settle_all(layer.weights);
    if (status) status = binder.settle_experts(layer);
  }
  if (!status) return status.error();
  for (const auto& [name, entry] : directory.entries())
    if (!entry.used && !changes_nothing(name, spec))
      return corrupt(directory.named(name, entry) +
                     " has no place in the model that the configuration describes, which would be "
                     "another one without it");
  return spec;
}

}  // namespace troupe
