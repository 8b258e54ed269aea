#include "kernels/doubles/spoilt_backend.h"

#include <utility>

namespace troupe::kernels {
namespace {

const SpoiltBackend& backend_of(const Stream& stream) {
  return static_cast<const SpoiltBackend&>(stream.backend());
}

void spoil(Stream& stream, std::string_view op, void* first) {
  if (!backend_of(stream).spoils(op)) return;
  const unsigned char spoilt = static_cast<unsigned char>(*stream.read(first, 1)) ^ 1u;
  stream.write(first, &spoilt, 1);
}

void spoilt_attention(Stream& stream, const AttentionInputs& in, const PagedRows& where,
                      const Tensor& q, const Tensor& out) {
  backend_of(stream).whole.attention(stream, in, where, q, out);
  spoil(stream, "attention", out.data);
}

void spoilt_expert_mlp(Stream& stream, std::span<const ExpertCall> calls, GatedAct act,
                       const std::byte* const* rows, std::byte* const* outputs) {
  backend_of(stream).whole.expert_mlp(stream, calls, act, rows, outputs);
  if (calls[0].count > 0) spoil(stream, "expert_mlp", outputs[calls[0].first]);
}

void spoilt_linear(Stream& stream, const Weight& weight, const Activation& x, const Tensor& y,
                   const float* bias) {
  backend_of(stream).whole.linear(stream, weight, x, y, bias);
  spoil(stream, "linear", y.data);
}

}  // namespace

SpoiltBackend::SpoiltBackend(const Backend& of, Spoils how)
    : Backend(of), whole(of), spoils(std::move(how)) {
  attention = spoilt_attention;
  expert_mlp = spoilt_expert_mlp;
  linear = spoilt_linear;
}

}  // namespace troupe::kernels
