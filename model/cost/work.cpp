#include "model/cost/work.h"

#include <algorithm>

#include "model/spec/sizes.h"

namespace troupe {
namespace {

using kernels::Codes;

/// Ops of a layer without a matrix, as model/forward has them.
constexpr double kAttentionCalls = 9;  // norm, rope twice, store, attention, residual, prepare
constexpr double kLatentCalls = 4;     // MLA's two norms, copies, absorbed queries
constexpr double kFeedForwardCalls = 3;
constexpr double kGateCalls = 4;  // gate, rows for the wire, grouping of pairs, combine

/// Rank 0's part of a weight.
double share(const WeightSpec& weight, const CostOptions& options) {
  return weight.split == SplitAxis::kNone ? 1.0 : 1.0 / options.ranks;
}

/// `experts` matrices of that kind, each multiplied with `rows`.
void add_weight(Work& work, const WeightSpec& weight, const AttentionSpec& attention,
                const CostOptions& options, double experts, double rows) {
  if (weight.precision == Precision::kVector || weight.precision == Precision::kRows) return;
  for (const HeldForm& form : held_forms(weight, attention, options.numerics)) {
    const double times = experts * share(weight, options);
    ProductWork product;
    product.kind = product_kind(form, options.numerics);
    product.rows = rows;
    product.elements = times * static_cast<double>(form.stored.n * form.stored.k) *
                       static_cast<double>(form.groups);
    product.bytes = times * static_cast<double>(kernels::packed_bytes(options.numerics, form.stored,
                                                                      form.options, form.groups));
    product.calls = 1;
    product.matrices = experts;
    work.add(product);
  }
}

/// The part of a window's positions that is seen or read.
double within(const AttentionSpec& attention, double positions) {
  return attention.window > 0 ? std::min<double>(positions, attention.window) : positions;
}

AttentionWork attention_work(const LayerSpec& layer, const StepShape& step,
                             const CostOptions& options) {
  const AttentionSpec& a = layer.attention;
  // Heads are shared out; MLA's cache is each rank's own, since all heads read the same rows.
  const double heads = static_cast<double>(a.heads) / options.ranks;
  const double held =
      a.kind == AttentionKind::kMla ? 1.0 : std::max(1.0 / options.ranks, 1.0 / a.kv_heads);
  double numbers = 0;
  for (const KvPoolSpec& pool : layer.kv) numbers += pool.row;
  AttentionWork work;
  work.operations_a_position = 2 * heads * (a.qk_dim + a.v_dim) * step.rows;
  work.operations = work.operations_a_position * within(a, step.visible);
  work.rows = step.rows;
  work.sequences = step.sequences;
  work.bytes = step.sequences * within(a, step.context) * numbers * held *
               static_cast<double>(dtype_size(kv_type(options.numerics)));
  return work;
}

}  // namespace

ProductKind product_kind(const HeldForm& form, Numerics numerics) {
  if (kernels::keeps_codes(form.stored, form.options))
    return {form.stored.codes, form.options.full_precision};
  return {numerics == Numerics::kReference ? Codes::kF32 : Codes::kBf16,
          form.options.full_precision};
}

std::string to_string(const ProductKind& kind) {
  constexpr const char* kNames[] = {"f32", "bf16", "f16", "fp8", "int4", "fp4"};
  std::string text = kNames[static_cast<int>(kind.codes)];
  return kind.full_precision ? text + ", full precision" : text;
}

double Work::weight_bytes() const {
  double bytes = 0;
  for (const ProductWork& p : products) bytes += p.bytes;
  return bytes;
}

double Work::operations() const {
  double sum = attention.operations;
  for (const ProductWork& p : products) sum += p.operations();
  return sum;
}

double Work::calls() const {
  double sum = other_calls;
  for (const ProductWork& p : products) sum += p.calls;
  return sum;
}

void Work::add(const ProductWork& product) {
  for (ProductWork& p : products) {
    if (p.kind != product.kind || p.rows != product.rows || p.drawn != product.drawn) continue;
    p.elements += product.elements;
    p.bytes += product.bytes;
    p.calls += product.calls;
    p.matrices += product.matrices;
    return;
  }
  products.push_back(product);
}

void Work::add(const Work& other, double times) {
  for (ProductWork p : other.products) {
    p.elements *= times;
    p.bytes *= times;
    p.calls *= times;
    p.matrices *= times;
    add(p);
  }
  attention.bytes += times * other.attention.bytes;
  attention.operations += times * other.attention.operations;
  attention.operations_a_position += times * other.attention.operations_a_position;
  attention.rows = std::max(attention.rows, other.attention.rows);
  attention.sequences = std::max(attention.sequences, other.attention.sequences);
  other_calls += times * other.other_calls;
}

StepShape decode_step(double sequences, double context) {
  return {sequences, sequences, context, context, sequences};
}

StepShape prompt_step(double rows, double length) {
  const double prompts = std::max(1.0, rows / length);
  // A row sees itself and what is before it; a chunk reads all up to its end.
  const double chunk = std::min(rows, length);
  return {rows, prompts, (length + 1) / 2, (length + chunk) / 2, rows / length};
}

Work layer_work(const ModelSpec& spec, std::int32_t layer, const StepShape& step,
                const CostOptions& options) {
  const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
  Work work;
  for (const WeightSpec& weight : l.weights)
    add_weight(work, weight, l.attention, options, 1, step.rows);
  work.attention = attention_work(l, step, options);
  work.other_calls = kAttentionCalls + kFeedForwardCalls +
                     (l.attention.kind == AttentionKind::kMla ? kLatentCalls : 0) +
                     (l.has_experts() ? kGateCalls : 0);
  return work;
}

Work head_work(const ModelSpec& spec, const StepShape& step, const CostOptions& options) {
  Work once, work;
  for (const WeightSpec& weight : spec.last)
    add_weight(once, weight, {}, options, 1, std::max(1.0, step.logit_rows));
  work.add(once, std::min(1.0, step.logit_rows));  // not every step of a prompt needs it
  return work;
}

Work expert_work(const ModelSpec& spec, std::int32_t layer, double experts, double pairs,
                 const CostOptions& options) {
  const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
  CostOptions whole = options;
  whole.ranks = 1;  // an expert is never split
  Work work;
  if (experts <= 0) return work;
  for (const WeightSpec& weight : l.expert)
    add_weight(work, weight, l.attention, whole, experts, pairs / experts);
  for (ProductWork& p : work.products) p.drawn = true;
  return work;
}

double wire_row_bytes(const ModelSpec& spec, Numerics numerics) {
  return static_cast<double>(spec.hidden) * static_cast<double>(dtype_size(wire_type(numerics)));
}

double hidden_row_bytes(const ModelSpec& spec) { return 4.0 * spec.hidden; }

double reduce_bytes(const ModelSpec& spec, double rows, int ranks) {
  if (ranks <= 1) return 0;
  return 2 * rows * hidden_row_bytes(spec) * 2 * (ranks - 1) / ranks;
}

}  // namespace troupe
