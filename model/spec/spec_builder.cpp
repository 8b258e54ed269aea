#include "model/spec/spec_builder.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "kernels/weight.h"
#include "model/spec/stored_parts.h"
#include "runtime/limits.h"

namespace troupe {

using limits::kDimensionMax;

namespace {

/// One or a list; a null names none, and 1.0 is 1. Some name tokens that their vocabulary does not
/// have: those end nothing.
std::vector<TokenId> end_tokens(JsonReader& in) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<TokenId> ids;
  const auto* told = in.find(kKey);
  if (told == nullptr) return ids;
  for (const auto& item : told->is_array() ? *told : nlohmann::json::array({*told})) {
    if (item.is_null()) continue;
    const double id = item.is_number() ? item.get<double>() : NAN;
    if (id != std::trunc(id))
      in.fail(kKey, "a token's id or a list of them");
    else if (std::abs(id) <= INT32_MAX)
      ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace

void read_common(SpecBuilder& b) {
  JsonReader& in = b.in;
  ModelSpec& spec = b.spec;
  spec.hidden = in.int32("hidden_size", 1, kDimensionMax);
  spec.vocab = in.int32("vocab_size", 1, kDimensionMax);
  const auto layers = in.int32("num_hidden_layers", 1, limits::kLayersMax);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.positions_max = in.int32("max_position_embeddings", 1, kDimensionMax);
  spec.norm_eps = static_cast<float>(in.number_or("rms_norm_eps", 1e-6, 1e-30, 1.0));
  spec.mtp_layers = in.int32_or("num_nextn_predict_layers", 0, 0, limits::kLayersMax);
  b.tied = in.boolean_or("tie_word_embeddings", false);
  spec.eos_token_ids = end_tokens(in);
}

void check_activation(JsonReader& in) {
  const std::string told = in.string_or("hidden_act", "silu");
  if (told != "silu" && told != "swish") in.fail("hidden_act", "\"silu\"");
}

void refuse_biases(JsonReader& in, const char* key) {
  if (in.boolean_or(key, false))
    in.fail(key, "false, because biases are not supported there for this family");
}

std::string layer_prefix(std::int32_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

void add_ends(SpecBuilder& b) {
  const ModelSpec& spec = b.spec;
  const std::string embedding = "model.embed_tokens.weight";
  WeightList first(b, b.spec.first);
  first.plain(WeightRole::kEmbedding, embedding, spec.vocab, spec.hidden,
              {.split = SplitAxis::kOutputs, .precision = Precision::kRows});
  WeightList last(b, b.spec.last);
  last.vector(WeightRole::kFinalNorm, "model.norm.weight", spec.hidden);
  const MatrixOptions head = {.split = SplitAxis::kOutputs, .kind = ModuleKind::kHead};
  if (b.tied)
    last.plain(WeightRole::kHead, embedding, spec.vocab, spec.hidden, head);
  else
    last.matrix(WeightRole::kHead, "lm_head", spec.vocab, spec.hidden, head);
}

WeightSpec& WeightList::plain(WeightRole role, const std::string& name, std::int64_t n,
                              std::int64_t k, const MatrixOptions& options) {
  WeightSpec w;
  w.role = role;
  w.name = name;
  w.n = n;
  w.k = k;
  w.precision = options.precision;
  w.split = options.split;
  w.slices = options.slices;
  return out_.emplace_back(std::move(w));
}

WeightSpec& WeightList::vector(WeightRole role, const std::string& name, std::int64_t k) {
  return plain(role, name, 1, k, {.precision = Precision::kVector});
}

WeightSpec& WeightList::matrix(WeightRole role, const std::string& module, std::int64_t n,
                               std::int64_t k, const MatrixOptions& options) {
  WeightSpec& w = plain(role, module, n, k, options);
  w.converts = true;
  // Experts are converted alike; the checkpoint's own are all looked at when it is bound.
  const auto form = b_.quantization.form_of(name_of(w, 0), options.kind);
  if (!form) b_.in.fail("quantization_config", "without trouble, but it " + form.error().message);
  w = stored_as(w, form ? *form : StoredForm{});
  return w;
}

void WeightList::mlp(const std::string& prefix, std::int64_t inner) {
  const MatrixOptions outputs = {.split = SplitAxis::kOutputs};
  matrix(WeightRole::kGate, prefix + "gate_proj", inner, b_.spec.hidden, outputs);
  matrix(WeightRole::kUp, prefix + "up_proj", inner, b_.spec.hidden, outputs);
  matrix(WeightRole::kDown, prefix + "down_proj", b_.spec.hidden, inner,
         {.split = SplitAxis::kInputs, .slices = kernels::sum_slices(inner)});
}

void WeightList::experts(const std::string& prefix, std::int64_t inner) {
  const std::string expert = prefix + "*.";
  const MatrixOptions outputs = {.split = SplitAxis::kOutputs};
  matrix(WeightRole::kExpertGate, expert + "gate_proj", inner, b_.spec.hidden, outputs);
  matrix(WeightRole::kExpertUp, expert + "up_proj", inner, b_.spec.hidden, outputs);
  matrix(WeightRole::kExpertDown, expert + "down_proj", b_.spec.hidden, inner,
         {.split = SplitAxis::kInputs});
}

namespace {

void check_groups(JsonReader& in, const kernels::GateConfig& g, const char* experts) {
  using kernels::GateMethod;
  if (!in.ok() || g.method == GateMethod::kGreedy) return;
  if (g.experts % g.n_group != 0)
    in.fail("n_group", std::string("a divisor of ") + experts + ", " + std::to_string(g.experts));
  if (g.topk_group > g.n_group)
    in.fail("topk_group", "at most n_group, " + std::to_string(g.n_group));
  if (!in.ok()) return;
  const std::int64_t per_group = g.experts / g.n_group;
  if (g.method == GateMethod::kNoauxTc && per_group < 2)
    in.fail("n_group", "small enough that a group has two experts, whose scores rank it");
  if (g.topk_group * per_group < g.top_k)
    in.fail("topk_group", "large enough that the chosen groups hold num_experts_per_tok, " +
                              std::to_string(g.top_k) + ", experts");
}

}  // namespace

kernels::GateConfig read_gate(JsonReader& in, const GateKeys& keys) {
  using kernels::GateMethod;
  using kernels::GateScoring;
  kernels::GateConfig g = keys.defaults;
  g.experts = in.int32(keys.experts, 1, limits::kExpertsMax);
  g.top_k = in.int32("num_experts_per_tok", 1, limits::kTopKMax);
  if (in.ok() && g.top_k > g.experts)
    in.fail("num_experts_per_tok",
            std::string("at most ") + keys.experts + ", " + std::to_string(g.experts));
  g.n_group = in.int32_or("n_group", 1, 1, limits::kExpertsMax);
  g.topk_group = in.int32_or("topk_group", 1, 1, limits::kExpertsMax);
  g.norm_topk_prob = in.boolean_or("norm_topk_prob", g.norm_topk_prob);
  g.routed_scaling_factor =
      static_cast<float>(in.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));

  if (in.has("scoring_func")) {
    const auto scoring = in.string("scoring_func");
    if (scoring != "sigmoid" && scoring != "softmax")
      in.fail("scoring_func", "\"sigmoid\" or \"softmax\"");
    g.scoring = scoring == "sigmoid" ? GateScoring::kSigmoid : GateScoring::kSoftmax;
  }
  if (in.has("topk_method")) {
    const auto method = in.string("topk_method");
    if (method == "noaux_tc")
      g.method = GateMethod::kNoauxTc;
    else if (method == "group_limited_greedy")
      g.method = GateMethod::kGroupLimitedGreedy;
    else if (method == "greedy")
      g.method = GateMethod::kGreedy;
    else
      in.fail("topk_method", "\"noaux_tc\", \"group_limited_greedy\" or \"greedy\"");
  }
  check_groups(in, g, keys.experts);
  return g;
}

}  // namespace troupe
