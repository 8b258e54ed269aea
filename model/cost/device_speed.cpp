#include "model/cost/device_speed.h"

#include <algorithm>

namespace troupe {
namespace {

using kernels::Codes;

double divided(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

/// Products with split activations are made twice.
double parts(const ProductKind& kind) { return kind.full_precision ? 2 : 1; }

/// Between the measured numbers of rows in a line; beyond the last, as the last.
double element_seconds(const ProductSpeed& speed, double rows) {
  const auto& points = speed.points;
  if (rows <= points.front().rows) return points.front().element_s;
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (rows > points[i].rows) continue;
    const double part = (rows - points[i - 1].rows) / (points[i].rows - points[i - 1].rows);
    return points[i - 1].element_s + part * (points[i].element_s - points[i - 1].element_s);
  }
  return points.back().element_s * rows / points.back().rows;
}

double product_seconds(const DeviceSpeed& device, const ProductWork& product) {
  for (const ProductSpeed& speed : device.products)
    if (speed.kind == product.kind && !speed.points.empty())
      return product.elements * element_seconds(speed, product.rows);
  const Efficiency& e = device.efficiency;
  return std::max(divided(product.bytes, device.ceilings.memory * e.memory),
                  divided(product.operations() * parts(product.kind),
                          best_rate(device, product.kind) * e.compute));
}

double attention_seconds(const DeviceSpeed& device, const AttentionWork& attention, bool one_row) {
  const double measured = one_row ? device.attention_few : device.attention_many;
  const Efficiency& e = device.efficiency;
  const double rate =
      measured > 0 ? measured : best_rate(device, {Codes::kBf16, false}) * e.compute;
  return std::max(divided(attention.bytes, device.ceilings.memory * e.memory),
                  divided(attention.operations, rate));
}

}  // namespace

std::string_view to_string(Arithmetic arithmetic) {
  constexpr std::string_view kNames[] = {"fma", "bf16", "fp8"};
  return kNames[static_cast<int>(arithmetic)];
}

double best_rate(const DeviceSpeed& device, const ProductKind& kind) {
  const Ceilings& c = device.ceilings;
  if (device.arithmetic == Arithmetic::kFma || kind.codes == Codes::kF32) return c.fma;
  const bool fp8 = device.arithmetic == Arithmetic::kFp8 && kind.codes == Codes::kFp8 &&
                   !kind.full_precision && c.fp8 > 0;
  return fp8 ? c.fp8 : c.bf16;
}

double memory_seconds(const DeviceSpeed& device, const Work& work) {
  return divided(work.bytes(), device.ceilings.memory);
}

double compute_seconds(const DeviceSpeed& device, const Work& work) {
  double seconds = divided(work.attention.operations, best_rate(device, {Codes::kBf16, false}));
  for (const ProductWork& p : work.products)
    seconds += divided(p.operations() * parts(p.kind), best_rate(device, p.kind));
  return seconds;
}

double expected_seconds(const DeviceSpeed& device, const Work& work, bool one_row_a_sequence) {
  double seconds = attention_seconds(device, work.attention, one_row_a_sequence) +
                   work.calls() * device.efficiency.call_s;
  for (const ProductWork& p : work.products) seconds += product_seconds(device, p);
  return seconds;
}

void WireBytes::add(const WireBytes& other, double times) {
  network_out += times * other.network_out;
  network_in += times * other.network_in;
  link_out += times * other.link_out;
  link_in += times * other.link_in;
}

double wire_seconds(const DeviceSpeed& device, const WireBytes& wire) {
  return std::max(divided(std::max(wire.network_out, wire.network_in), device.ceilings.network),
                  divided(std::max(wire.link_out, wire.link_in), device.ceilings.link));
}

}  // namespace troupe
