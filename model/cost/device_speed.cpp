#include "model/cost/device_speed.h"

#include <algorithm>
#include <cmath>

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

/// With so many rows on each of its matrices.
double seconds_with(const DeviceSpeed& device, const ProductWork& product, double rows) {
  for (const ProductSpeed& speed : device.products)
    if (speed.kind == product.kind && !speed.points.empty())
      return product.elements * element_seconds(speed, rows);
  const Efficiency& e = device.efficiency;
  return std::max(divided(product.bytes, device.ceilings.memory * e.memory),
                  divided(2 * product.elements * rows * parts(product.kind),
                          best_rate(device, product.kind) * e.compute));
}

/// The mean of a Poisson distribution whose mean is `mean` where it is not 0.
double mean_of_all(double mean) {
  double low = 0, high = mean;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (middle < mean * -std::expm1(-middle) ? low : high) = middle;
  }
  return high;
}

double product_seconds(const DeviceSpeed& device, const ProductWork& product) {
  // Many are as good as their mean; one is one.
  constexpr double kManyRows = 64;
  if (!product.drawn || product.rows > kManyRows || product.rows <= 1.001)
    return seconds_with(device, product, product.rows);
  // Few rows take as long as one, more take longer: the mean time is not that of the mean.
  const double mean = mean_of_all(product.rows);
  double seconds = 0, chance = std::exp(-mean);
  const double hit = 1 - chance;
  for (int rows = 1; rows < 3 * kManyRows; ++rows) {
    chance *= mean / rows;
    seconds += chance / hit * seconds_with(device, product, rows);
  }
  return seconds;
}

double measured_seconds(const AttentionSpeed& speed, const AttentionWork& work) {
  return (work.operations + speed.more_positions * work.operations_a_position) / speed.rate;
}

double attention_seconds(const DeviceSpeed& device, const AttentionWork& work) {
  const Efficiency& e = device.efficiency;
  const double read_s = divided(work.bytes, device.ceilings.memory * e.memory);
  const bool prompt = work.rows > work.sequences;
  if (work.operations <= 0) return read_s;
  if (prompt && device.attention_prompt.rate > 0)
    return measured_seconds(device.attention_prompt, work);
  if (!prompt && device.attention_one.rate > 0 && device.attention_batch.rate > 0) {
    // Between one sequence and a batch, in a line.
    const double part = std::clamp((work.sequences - 1) / (kAttentionBatch - 1), 0.0, 1.0);
    return (1 - part) * measured_seconds(device.attention_one, work) +
           part * measured_seconds(device.attention_batch, work);
  }
  return std::max(read_s,
                  divided(work.operations, best_rate(device, {Codes::kBf16, false}) * e.compute));
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

double expected_seconds(const DeviceSpeed& device, const Work& work) {
  double seconds =
      attention_seconds(device, work.attention) + work.calls() * device.efficiency.call_s;
  for (const ProductWork& p : work.products)
    seconds += product_seconds(device, p) + p.matrices * device.efficiency.matrix_s;
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
