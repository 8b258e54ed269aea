/// The ops, by the back-end of their stream.
#include "kernels/backend.h"

namespace troupe::kernels {
void attention(Stream& stream, const AttentionInputs& in, const PagedRows& where, const Tensor& q,
               const Tensor& out) {
  if (q.rows == 0) return;
  stream.next_op().attention(stream, in, where, q, out);
}

void bad_rows(Stream& stream, const Tensor& x, std::int32_t layer, std::int32_t* first) {
  stream.next_op().bad_rows(stream, x, layer, first);
}

void chosen_mlp(Stream& stream, const ExpertTable& table, GatedAct act, std::int32_t per_row,
                std::span<const ChosenRows> pieces, std::int32_t pairs_at_once) {
  if (pieces.empty()) return;
  stream.next_op().chosen_mlp(stream, table, act, per_row, pieces, pairs_at_once);
}

void combine(Stream& stream, std::span<const WeightedOutput> outputs, std::size_t per_row,
             const Tensor& y) {
  stream.next_op().combine(stream, outputs, per_row, y);
}

void combine_dense(Stream& stream, const Tensor& outputs, const float* weights, const Tensor& y) {
  stream.next_op().combine_dense(stream, outputs, weights, y);
}

void copy(Stream& stream, const Tensor& x, const Tensor& y) { stream.next_op().copy(stream, x, y); }

void embedding(Stream& stream, const Weight& table, const std::int32_t* ids, const Tensor& y) {
  stream.next_op().embedding(stream, table, ids, y);
}

void expert_mlp(Stream& stream, std::span<const ExpertCall> calls, GatedAct act,
                const std::byte* const* rows, std::byte* const* outputs) {
  if (calls.empty()) return;
  stream.next_op().expert_mlp(stream, calls, act, rows, outputs);
}

void from_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.next_op().from_wire(stream, x, y);
}

void gated_mlp(Stream& stream, const GatedMlp& mlp, GatedAct act, const Tensor& x,
               const Tensor& y) {
  if (x.rows == 0) return;
  stream.next_op().gated_mlp(stream, mlp, act, x, y);
}

void join(Stream& stream, std::span<const float* const> parts, const float* bias, const Tensor& y) {
  if (y.rows == 0) return;
  stream.next_op().join(stream, parts, bias, y);
}

void linear(Stream& stream, const Weight& weight, const Activation& x, const Tensor& y,
            const float* bias) {
  if (x.rows == 0) return;
  stream.next_op().linear(stream, weight, x, y, bias);
}

void moe_gate(Stream& stream, const GateConfig& config, const Tensor& logits, const float* bias,
              std::int32_t* ids, float* weights) {
  stream.next_op().moe_gate(stream, config, logits, bias, ids, weights);
}

Activation prepare(Stream& stream, const Tensor& x, const Weight& weight) {
  return stream.next_op().prepare(stream, x, weight);
}

void residual_add(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.next_op().residual_add(stream, x, y);
}

void rms_norm(Stream& stream, const Tensor& x, const Weight& weight, float epsilon,
              const Tensor& y) {
  stream.next_op().rms_norm(stream, x, weight, epsilon, y);
}

void rope(Stream& stream, const RopeTable& table, RopePairs pairs, const std::int32_t* positions,
          const Tensor& x) {
  stream.next_op().rope(stream, table, pairs, positions, x);
}

void sample(Stream& stream, const Tensor& logits, std::span<const SampleCall> calls,
            const SampleLists& lists, const SampleResults& results) {
  if (!calls.empty()) stream.next_op().sample(stream, logits, calls, lists, results);
}

void silu_mul(Stream& stream, GatedAct act, const Tensor& gate, const Tensor& up, const Tensor& y) {
  stream.next_op().silu_mul(stream, act, gate, up, y);
}

void store_kv(Stream& stream, const KvPool& pool, const PagedRows& where, const Tensor& x,
              std::int64_t first) {
  stream.next_op().store_kv(stream, pool, where, x, first);
}

void to_wire(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.next_op().to_wire(stream, x, y);
}

}  // namespace troupe::kernels
