#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/spec/held_forms.h"
#include "model/spec/model_spec.h"
#include "runtime/numerics.h"

/// What a part of a step reads and computes, counted from the ModelSpec: no clock, no machine.
/// Counts are averages, so they are not whole numbers.
namespace troupe {

/// What decides how fast a machine makes a product.
struct ProductKind {
  kernels::Codes codes = kernels::Codes::kBf16;  ///< as the matrix is held
  bool full_precision = false;                   ///< activations are split: twice the arithmetic
  auto operator<=>(const ProductKind&) const = default;
};
ProductKind product_kind(const HeldForm& form, Numerics numerics);
/// "fp8", "bf16, full precision".
std::string to_string(const ProductKind& kind);

/// Matrices of one kind, each multiplied with so many rows.
struct ProductWork {
  ProductKind kind;
  double rows = 0;
  double elements = 0;  ///< numbers in the matrices
  double bytes = 0;     ///< that they take
  double calls = 0;     ///< ops that make them
  double matrices = 0;  ///< one op may make many
  bool drawn =
      false;  ///< rows differ from matrix to matrix, as gates draw them; `rows` is the mean
  double operations() const { return 2 * elements * rows; }  ///< multiplications and additions
};

/// Attention over the cache.
struct AttentionWork {
  double bytes = 0;                  ///< of the cache, each sequence's read once
  double operations = 0;             ///< of q K^T and of p V
  double operations_a_position = 0;  ///< the same if every row saw one position
  double rows = 0, sequences = 0;    ///< of a layer; the most of what was added
};

/// What one device has to do.
struct Work {
  std::vector<ProductWork> products;  ///< no two alike in kind, rows and `drawn`
  AttentionWork attention;
  double other_calls = 0;  ///< of ops without a matrix: norms, rope, attention, ...

  double weight_bytes() const;
  double bytes() const { return weight_bytes() + attention.bytes; }
  double operations() const;  ///< of products and attention
  double calls() const;
  void add(const ProductWork& product);
  void add(const Work& other, double times = 1);
};

/// One step of one replica.
struct StepShape {
  double rows = 0;        ///< tokens that are computed
  double sequences = 0;   ///< that they belong to
  double visible = 0;     ///< positions that a row sees, on average
  double context = 0;     ///< positions that are read of each sequence, on average
  double logit_rows = 0;  ///< whose next token is drawn
};
/// Each of `sequences` gets a token after `context` others.
StepShape decode_step(double sequences, double context);
/// An average step of `rows` over prompts of `length` tokens.
StepShape prompt_step(double rows, double length);

/// How the work of a layer is shared by the ranks of a tensor-parallel group.
struct CostOptions {
  Numerics numerics = Numerics::kBf16;
  int ranks = 1;
};

/// A layer without its routed experts: attention, norms, gate, shared experts or dense MLP.
Work layer_work(const ModelSpec& spec, std::int32_t layer, const StepShape& step,
                const CostOptions& options);
/// The embedding's rows are nothing beside the rest; the head is one product.
Work head_work(const ModelSpec& spec, const StepShape& step, const CostOptions& options);
/// A pass over `experts` of a layer's routed ones for `pairs` of a row and an expert.
Work expert_work(const ModelSpec& spec, std::int32_t layer, double experts, double pairs,
                 const CostOptions& options);

/// Bytes of a row that goes to an expert, and of what comes back; of a row that goes to the next
/// pipeline stage (float32).
double wire_row_bytes(const ModelSpec& spec, Numerics numerics);
double hidden_row_bytes(const ModelSpec& spec);
/// What each rank of a tensor-parallel group sends a layer: float32 partial sums of two products,
/// reduced and handed out again.
double reduce_bytes(const ModelSpec& spec, double rows, int ranks);

}  // namespace troupe
